"""Every promise of README.md, SECURITY.md and docs/explanation/delivery.md, with the tests that hold it.

`tests/docs/test_promises.py` reads these pages sentence by sentence. It fails for a sentence that nothing here quotes,
for a quote that is not on its page, and for a test that no make target runs. A test is named by its function, wherever
that is; name one only after reading it: it must fail when the promise is broken. How fast something is, `make bench`
holds.
"""

from tests.promises.delivery import DELIVERY
from tests.promises.readme import README
from tests.promises.security import SECURITY

PAGES = (README, SECURITY, DELIVERY)
