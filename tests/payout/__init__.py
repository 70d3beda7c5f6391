"""What tests/payout_driver.py is made of. It shares the chains, the proxies and the program's wrapper with tests/deposit."""
