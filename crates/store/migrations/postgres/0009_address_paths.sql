-- The columns of a path in another order. With the wallet and the account first, the planner of a database that nobody has
-- analysed took this index for as good as uidx_addresses_account to find an address by its number: each new output then read half
-- of the account's addresses. Whoever asks for a path names all of its columns, so their order does not matter to anybody else.
-- SQLite finds what a foreign key refers to by the index on just these columns, and keeps its own.

ALTER TABLE addresses DROP CONSTRAINT uidx_addresses_path;
ALTER TABLE addresses ADD CONSTRAINT uidx_addresses_path UNIQUE (child_index, branch, kind, account, wallet_id);
