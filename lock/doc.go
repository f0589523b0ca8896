// Package lock holds things across processes: locks that live in Redis, with the
// keys, fields, channels and messages of Redisson 3.17 and later, so that a Java
// service and a Go service can wait for each other.
//
// A [Locker] stands for one process. Its locks are made by kind and name, and
// holding one is a value:
//
//	locker := lock.New(rdb)
//	defer locker.Close()
//	hold, err := locker.Reentrant("orders").Lock(ctx)
//	if err != nil { … }
//	defer hold.Unlock(ctx)
//	work(hold.Context())
//
// It knows no HTTP, no configuration and no logging.
package lock
