from .findings import CheckedAccount, CheckedFile, Report, report_on
from .page import page_of
from .registry import registry_entry, registry_file

__all__ = [
    "CheckedAccount",
    "CheckedFile",
    "Report",
    "page_of",
    "registry_entry",
    "registry_file",
    "report_on",
]
