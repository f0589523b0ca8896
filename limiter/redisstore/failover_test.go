package redisstore_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// When the master fails under load, no more is open at a grant than what callers know allows, but for what was
// granted in the last moments and lost.
func TestConversion_SentinelFailsOver(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	store := storeOn(t, clientOf(t, redisstore.ClientConfig{Mode: redisstore.Sentinel, Addrs: servers.Addrs, Master: servers.Name, Timeout: 2 * time.Second, BreakRest: 100 * time.Millisecond}), redisstore.Options{Timeout: 2 * time.Second})
	e := newExpectation(t, store)
	e.run(func() {
		servers.Master.Kill()
		e.mayLose(func(limiter.Key) bool { return true })
	})
	e.check()
}

func TestConversion_ClusterFailsOver(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, 3)
	client := clusterClient(t, servers)
	store := storeOn(t, client, redisstore.Options{Timeout: 2 * time.Second, CachedRefusals: -1})
	f := &failover{t: t, servers: servers, client: client, store: store}
	t.Run("ReplicaHangs", f.replicaHangs)
	t.Run("NoteComesBack", f.noteComesBack)
	t.Run("UnderLoad", func(t *testing.T) {
		e := newExpectation(t, store)
		e.run(func() {
			servers.Nodes[2].Kill()
			e.mayLose(func(k limiter.Key) bool { return f.masterOf(k) == 2 })
		})
		e.check()
	})
}

// A failover is a cluster of three masters, which fail.
type failover struct {
	t       *testing.T
	servers *redistest.Cluster
	client  *redis.ClusterClient
	store   *redisstore.Store
}

// masterOf is the number of the master that had the keys of k in the beginning.
func (f *failover) masterOf(k limiter.Key) int {
	slot := f.client.ClusterKeySlot(f.t.Context(), "{"+k.String()+"}").Val()
	return int(slot) * 3 / 16384
}

// on is one of many keys that master n has.
func (f *failover) on(n int, name string) limiter.Key {
	for i := 0; ; i++ {
		if k := limiter.KeyOf(f.t.Name(), name, strconv.Itoa(i)); f.masterOf(k) == n {
			return k
		}
	}
}

// a is a limit, and a claim on it of a key and a subject.
func (f *failover) a(t *testing.T, key, subject limiter.Key) limiter.Claim {
	l := limitertest.LimitOf(limiter.Conversion, t.Name()+".unused:1h", limiter.Rate{Count: 5, Window: time.Hour})
	return limiter.Claim{Limit: l, Key: key, Cost: 1, Value: subject}
}

func (f *failover) take(t *testing.T, c limiter.Claim) {
	t.Helper()
	if d := decide(t, f.store, c); !d.Allowed {
		t.Fatalf("refused: %+v", d)
	}
}

func (f *failover) status(t *testing.T, c limiter.Claim) limiter.KeyStatus {
	t.Helper()
	var in limiter.Inspection
	eventually(t, "the key is inspected", func() (ok bool) {
		var err error
		in, err = f.store.Inspect(t.Context(), []limiter.Claim{c})
		return err == nil
	})
	return in.Statuses[0]
}

// replicaHangs: while a replica does not confirm that a note is gone, nothing is returned.
func (f *failover) replicaHangs(t *testing.T) {
	c := f.a(t, f.on(1, "hangs"), f.on(0, "ann"))
	f.take(t, c)
	impatient := storeOn(t, f.client, redisstore.Options{Timeout: 500 * time.Millisecond})
	f.servers.Nodes[3].Signal(syscall.SIGSTOP)
	n, err := impatient.Return(t.Context(), []*limiter.Limit{c.Limit}, c.Value)
	f.servers.Nodes[3].Signal(syscall.SIGCONT)
	if s := f.status(t, c); n != 0 || err == nil || s.Used != 1 || s.Confirmed != 0 {
		t.Errorf("returned %d, %v; then %+v", n, err, s)
	}
	other := f.a(t, c.Key, f.on(0, "bob"))
	f.take(t, other)
	if n, err := f.store.Return(t.Context(), []*limiter.Limit{c.Limit}, other.Value); n != 1 || err != nil {
		t.Errorf("returned %d, %v when the replica has replied", n, err)
	}
}

// noteComesBack: a replica that was not connected when a note was removed, and becomes master all the same, has it
// still, as if it were written again. It is returned once more, which is a permit of somebody else and a subject too many, and
// no more than that.
func (f *failover) noteComesBack(t *testing.T) {
	ann := f.a(t, f.on(2, "back"), f.on(1, "ann"))
	bob := f.a(t, ann.Key, f.on(0, "bob"))
	f.take(t, ann)
	f.take(t, bob)
	f.take(t, bob)
	note := "weir:{" + ann.Value.String() + "}:" + strings.TrimSuffix(ann.Limit.Name, ":1h") + "{n}"
	text, err := f.client.Get(t.Context(), note).Result()
	if err != nil {
		t.Fatal(err)
	}
	returns := func(want int) {
		t.Helper()
		if n, err := f.store.Return(t.Context(), []*limiter.Limit{ann.Limit}, ann.Value); n != want || err != nil {
			t.Errorf("returned %d, %v; want %d", n, err, want)
		}
	}
	returns(1)
	returns(0)
	if err := f.client.Set(t.Context(), note, text, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	returns(1)
	returns(0)
	if s := f.status(t, bob); s.Used != 1 || s.Confirmed != 2 {
		t.Errorf("%+v; want 1 of 2 open, and 2 confirmed for 1", s)
	}
}
