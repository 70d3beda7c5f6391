-- How many unconfirmed transactions may hang together, and how many bytes they may have: nodes refuse the next one. A
-- number of the nodes, not of ours: the follower writes down what they say, and until then it is what all of them take.
-- The PostgreSQL folder has a file of the same name with the same tables and columns; a test compares them.

ALTER TABLE wallets ADD COLUMN most_chained INTEGER NOT NULL DEFAULT 25;
ALTER TABLE wallets ADD COLUMN most_chained_bytes INTEGER NOT NULL DEFAULT 101000;
