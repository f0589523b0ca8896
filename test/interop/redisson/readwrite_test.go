//go:build java

package redisson

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/lock"
)

// Readers of both languages read together, and the writer of either waits for all.
func TestReadWrite_ReadersReadTogether(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	rw := w.locker().ReadWrite("orders")
	j.do("locked", "ann", "read.lock", "orders")
	r := held(t, rw.Read())
	j.do("false", "bob", "write.try", "orders", 0)
	refused(t, rw.Write())

	writer := j.begin("bob", "write.lock", "orders")
	w.listens(1, "redisson_rwlock:{orders}")
	j.do("unlocked", "ann", "read.unlock", "orders")
	writer.waits()
	unlocked(t, r)
	writer.is("locked")

	reader := beside(t, rw.Read())
	w.listens(1, "redisson_rwlock:{orders}")
	j.do("locked", "bob", "read.lock", "orders") // goes on as a reader
	j.do("unlocked", "bob", "write.unlock", "orders")
	j.do("unlocked", "bob", "read.unlock", "orders")
	r = reader()

	got := j.begin("ann", "write.lock", "orders")
	w.listens(1, "redisson_rwlock:{orders}")
	unlocked(t, r)
	got.is("locked")
	j.do("unlocked", "ann", "write.unlock", "orders")

	// A writer of ours that goes on as a reader wakes Java's readers.
	wr := held(t, rw.Write())
	r = held(t, rw.Read(), lock.WithOwner(wr.Owner()))
	together := j.begin("ann", "read.lock", "orders")
	w.listens(1, "redisson_rwlock:{orders}")
	unlocked(t, wr)
	together.is("locked")
	j.do("unlocked", "ann", "read.unlock", "orders")
	unlocked(t, r)
}

// Java's readers come in at once, whenever they have asked: a writer that lets go while
// they are about to wait wakes them too.
func TestReadWrite_ReadersThatComeWhileTheWriterGoesAreWoken(t *testing.T) {
	w := newTestServer(t)
	j := newJava(t, w.server.Addr)
	writer := w.locker().ReadWrite("orders").Write()
	worst := time.Duration(0)
	for i := range 200 {
		hold := held(t, writer)
		reader := j.begin("ann", "read.lock", "orders")
		subscribing := time.NewTimer(time.Duration(i%20) * 200 * time.Microsecond) // it subscribes, and asks again
		<-subscribing.C
		began := time.Now()
		unlocked(t, hold)
		reader.is("locked")
		worst = max(worst, time.Since(began))
		j.do("unlocked", "ann", "read.unlock", "orders")
	}
	t.Logf("the slowest of 200 came in after %v", worst)
	if worst > soon {
		t.Errorf("one came in after %v", worst)
	}
}
