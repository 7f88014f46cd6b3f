"""Users where no broker has to be asked: in the folder of a stopped standalone broker, and in ZooKeeper."""
