"""Parts of tests/deposit_driver.py. Nothing of Bursar's own code is used here."""
