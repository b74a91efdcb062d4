"""`odradek demo --versus`: readers of several clients live through one move of real brokers.

`peers` says who they are and which are installed; `reader` is the child process of each, with the
plain code in the `*_reader` modules; `stage` has the cluster, the publisher and the children;
`outcome` says what became of whom, in words, numbers and a picture.
"""
