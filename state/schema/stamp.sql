-- Every file of a state directory says whose it is and how far it got.
CREATE TABLE stamp (
    state TEXT NOT NULL,       -- the id of the state directory
    sequence INTEGER NOT NULL  -- grows with every commit
) STRICT;
