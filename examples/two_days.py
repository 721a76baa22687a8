# %% [markdown]
# # Two days with a ledger
#
# A promise to a patient lasts longer than a program. A ledger keeps the budget in a database: what
# was spent on the first day is gone on the second, on whichever machine, and what does not fit is
# refused.
#
# As a script: `python examples/two_days.py`, in an empty folder. It needs the extra `sklearn` for
# the data, and pandas.

# %% [markdown]
# ## The data
#
# 442 patients with diabetes (Efron, Hastie, Johnstone and Tibshirani, 2004). One record is one
# patient.

# %%
from datetime import UTC, datetime
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import matrixdp as mdp

names = ["age", "bmi", "bp"]
records = load_diabetes(as_frame=True, scaled=False).data[names]
bounds = mdp.queries.PublicBounds(names, lower=[18.0, 15.0, 50.0], upper=[90.0, 50.0, 140.0])

# %% [markdown]
# ## Before the first day
#
# Somebody decides what may be learnt about a patient, ever. That is the account.

# %%
url, keys = "sqlite:///study.ledger", "study.keys"
with mdp.ledger.Ledger.create(url, keys=keys) as ledger:
    ledger.open_account(
        "study", mdp.Budget(epsilon=2.0, delta=1e-6), neighbouring="add-remove", unit="patient"
    )

# %% [markdown]
# ## The first day
#
# Sums of three columns. The account pays before any noise is drawn.

# %%
sums = mdp.queries.Sum(bounds, "add-remove")
with mdp.ledger.Ledger.open(url, keys=keys) as ledger:
    first = sums.release_to(
        "sums.csv",
        records,
        mdp.Budget(epsilon=1.0, delta=1e-6),
        privacy_filter=ledger.account("study"),
        request="sums of the first day",
    )
print(first.guarantee)

# %% [markdown]
# ## The second day
#
# In another program, on another machine, somebody asks for second moments. What does not fit is
# refused, and costs nothing; what is left pays for a release with more noise.

# %%
gram = mdp.queries.Gram(bounds, "add-remove")
with mdp.ledger.Ledger.open(url, keys=keys) as ledger:
    study = ledger.account("study")
    try:
        gram.release_to("gram.csv", records, mdp.Budget(2.0, 1e-6), privacy_filter=study)
    except mdp.BudgetExceededError as error:
        print("refused:", error)
    left = mdp.Budget.from_mu(study.remaining, 1e-6)
    second = gram.release_to(
        "gram.csv", records, left, privacy_filter=study, request="second moments"
    )
    print(*ledger.explain("study").split("\n\n")[:2], sep="\n\n")

# %% [markdown]
# ## What the patients were promised, and what was spent
#
# Squares of mu add up, so they are what is drawn.

# %%
whole = mdp.Budget(epsilon=2.0, delta=1e-6).mu ** 2
days = {"first day: sums": first, "second day: second moments": second}
figure, axes = plt.subplots(figsize=(10.0, 1.6), layout="constrained")
spent = 0.0
for name, release in days.items():
    share = release.guarantee.mu**2 / whole
    axes.barh(0, share, left=spent, edgecolor="white")
    axes.text(spent + share / 2, 0, f"{name}\n{share:.0%}", ha="center", va="center", color="white")
    spent += share
axes.set(xlim=(0, 1), yticks=[], xlabel="share of the account that is spent")
axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
figure.savefig("two_days.png", dpi=120)

# %% [markdown]
# ## The page for the person who signs
#
# It proves both files again, and shows the whole account. Open it in a browser and print it.

# %%
with mdp.ledger.Ledger.open(url, keys=keys) as ledger:
    found = mdp.report.report_on(["sums.csv", "gram.csv"], ledger=ledger, account="study")
Path("two_days.html").write_bytes(mdp.report.page_of(found, datetime.now(UTC)))
print(f"wrote two_days.html; problems found: {found.problems}")
