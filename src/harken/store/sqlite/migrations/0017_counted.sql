-- How many conversations are in each state is asked for with every list: those that are set aside are counted here, and the
-- rest is what is left of all.
CREATE INDEX conversations_aside ON conversations (triage, other_n, through_n) WHERE triage <> '' OR other_n = 0;
