"""A proxy on this machine that cuts a connection at a chosen message."""

import contextlib
import select
import socket
import threading
from types import TracebackType
from typing import Self

__all__ = ["Proxy"]


class Proxy:
    """Passes messages on to a port, but for those that a test wants cut.

    Attributes
    ----------
    messages : int
        How many messages of clients have come since it was set.
    cut_at : int
        The number of the message at which a connection is cut, once; 0 for none.
    answered : bool
        Whether the server gets that message, and only its answer is lost.
    """

    def __init__(self, port: int) -> None:
        self.messages, self.cut_at, self.answered = 0, 0, False
        self.cuts = 0
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, message: int, *, answered: bool) -> None:
        """Cut the connection at a message from now on."""
        self.messages, self.cut_at, self.answered = 0, message, answered

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with (
            client,
            socket.create_connection(("127.0.0.1", self._server)) as server,
            contextlib.suppress(OSError),
        ):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if server in ready:
                    answer = server.recv(65536)
                    if not answer:
                        return
                    client.sendall(answer)
                if client in ready:
                    message = client.recv(65536)
                    if not message:
                        return
                    self.messages += 1
                    if self.messages == self.cut_at:
                        self.cuts += 1
                        if self.answered:
                            server.sendall(message)
                            server.recv(65536)
                        return
                    server.sendall(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):  # it is closed
            self._listening.shutdown(socket.SHUT_RDWR)  # a thread waits for it
        self._listening.close()
