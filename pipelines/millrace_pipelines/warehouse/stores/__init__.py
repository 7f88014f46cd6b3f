"""Where tables lie, behind one door: folders of this machine, and buckets."""
