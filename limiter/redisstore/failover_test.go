package redisstore_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// A send is a permit of a ledger's limit that is certainly taken: nobody has begun to return it.
type send struct {
	key, subject int
	claims       []limiter.Claim
	permit       limiter.Permit
	at           time.Time
}

// A ledger is what callers of a store know of it, while they take, return and refund at random. It counts what is
// open for certain, and each subject as confirmed as soon as somebody begins to return it.
type ledger struct {
	t     *testing.T
	store *redisstore.Store
	limit *limiter.Limit

	mu        sync.Mutex // guards what follows
	open      []send
	returns   map[[2]int]int // how often each subject of a key was returned, or one of it refunded
	confirmed []map[int]bool // by key, subjects
	slack     []int          // by key, permits that a failover may have lost
	granted   []int          // by key, since the last reset
}

const (
	ledgerKeys     = 6
	ledgerSubjects = 400 // of each key
	ledgerCallers  = 4
)

func newLedger(t *testing.T, store *redisstore.Store) *ledger {
	l := &ledger{t: t, store: store, returns: map[[2]int]int{}, slack: make([]int, ledgerKeys), granted: make([]int, ledgerKeys)}
	l.limit = &limiter.Limit{
		Name: t.Name() + ".unused:1h", Rate: limiter.Rate{Count: 5, Window: time.Hour},
		Algorithm: limiter.Conversion, Noted: true, Conversion: 50, Memory: 14 * day,
	}
	for range ledgerKeys {
		l.confirmed = append(l.confirmed, map[int]bool{})
	}
	return l
}

func (l *ledger) key(i int) limiter.Key { return limiter.KeyOf(l.t.Name(), strconv.Itoa(i)) }

func (l *ledger) subject(key, i int) limiter.Key {
	return limiter.KeyOf(l.t.Name(), strconv.Itoa(key), strconv.Itoa(i))
}

// step takes, returns or refunds something.
func (l *ledger) step() {
	key, subject := rand.IntN(ledgerKeys), rand.IntN(ledgerSubjects)
	switch n := rand.IntN(10); {
	case n < 6:
		l.take(key, subject)
	case n < 8:
		if s, ok := l.pick(); ok {
			l.giveBack(s.key, s.subject)
		}
	case n < 9:
		l.giveBack(key, subject) // most likely one that has nothing, or once more
	default:
		if s, ok := l.pick(); ok {
			l.begin(s.key, s.subject)
			_ = l.store.Refund(l.t.Context(), s.claims, s.permit)
		}
	}
}

func (l *ledger) take(key, subject int) {
	claims := []limiter.Claim{{Limit: l.limit, Key: l.key(key), Cost: 1, Value: l.subject(key, subject)}}
	l.mu.Lock()
	before := l.returns[[2]int{key, subject}]
	l.mu.Unlock()
	var d limiter.Decision
	if err := l.store.Take(l.t.Context(), claims, &d); err != nil || !d.Allowed {
		<-time.After(time.Millisecond) // the others need the processor
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted[key]++
	if l.returns[[2]int{key, subject}] != before {
		return // it may be returned already
	}
	l.open = append(l.open, send{key, subject, claims, d.Permit, time.Now()})
	if open, most := l.openOf(key), 5+len(l.confirmed[key])+l.slack[key]; open > most {
		l.t.Errorf("%d are open of key %d; at most %d may be", open, key, most)
	}
}

// openOf is how many permits of a key are taken for certain.
func (l *ledger) openOf(key int) (n int) {
	for _, s := range l.open {
		if s.key == key {
			n++
		}
	}
	return n
}

// pick is one of the open permits.
func (l *ledger) pick() (send, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == 0 {
		return send{}, false
	}
	return l.open[rand.IntN(len(l.open))], true
}

// begin forgets what is open of a subject.
func (l *ledger) begin(key, subject int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.returns[[2]int{key, subject}]++
	kept := l.open[:0]
	for _, s := range l.open {
		if s.key != key || s.subject != subject {
			kept = append(kept, s)
		}
	}
	l.open = kept
}

func (l *ledger) giveBack(key, subject int) {
	l.begin(key, subject)
	l.mu.Lock()
	l.confirmed[key][subject] = true
	l.mu.Unlock()
	_, _ = l.store.Return(l.t.Context(), []*limiter.Limit{l.limit}, l.subject(key, subject))
}

// run lets callers take steps around what happens, until every key is granted again.
func (l *ledger) run(happens func()) {
	l.t.Helper()
	done := make(chan struct{})
	var work sync.WaitGroup
	for range ledgerCallers {
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					l.step()
				}
			}
		})
	}
	defer work.Wait()
	defer close(done)
	l.untilGranted()
	happens()
	l.untilGranted()
}

// untilGranted waits until something was granted of each key, from now on.
func (l *ledger) untilGranted() {
	l.t.Helper()
	l.mu.Lock()
	clear(l.granted)
	l.mu.Unlock()
	eventually(l.t, "something of each key is granted", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, n := range l.granted {
			if n < 10 {
				return false
			}
		}
		return true
	})
}

// mayLose is called after a master has died: what was granted of its keys within the last two seconds, and what
// callers are about to hear, may be lost, and with the notes of that, as much of others may be returned.
func (l *ledger) mayLose(has func(limiter.Key) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range ledgerKeys {
		if has(l.key(key)) {
			l.slack[key] += ledgerCallers
		}
	}
	kept := l.open[:0]
	for _, s := range l.open {
		if has(l.key(s.key)) && time.Since(s.at) < 2*time.Second {
			l.slack[s.key]++
			continue
		}
		kept = append(kept, s)
	}
	l.open = kept
}

// check compares what the store says in the end.
func (l *ledger) check() {
	l.t.Helper()
	for key := range ledgerKeys {
		in, err := l.store.Inspect(l.t.Context(), []limiter.Claim{{Limit: l.limit, Key: l.key(key), Cost: 1}})
		if err != nil {
			l.t.Fatal(err)
		}
		s, open := in.Statuses[0], l.openOf(key)
		if int(s.Confirmed) > len(l.confirmed[key]) || int(s.Used) < open-l.slack[key] {
			l.t.Errorf("key %d: %+v, with %d open for certain, %d that may be lost, and %d subjects", key, s, open, l.slack[key], len(l.confirmed[key]))
		}
	}
	l.t.Logf("%d open for certain, %v may be lost", len(l.open), l.slack)
}

// When the master fails under load, no more is open at a grant than what callers know allows, but for what was
// granted in the last moments and lost.
func TestConversion_SentinelFailsOver(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	client, err := redisstore.NewClient(redisstore.ClientConfig{
		Mode: redisstore.Sentinel, Addrs: servers.Addrs, Master: servers.Name, Timeout: 2 * time.Second, BreakRest: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store := redisstore.New(client, redisstore.Options{Timeout: 2 * time.Second})
	defer store.Close()
	l := newLedger(t, store)
	l.run(func() {
		servers.Master.Kill()
		l.mayLose(func(limiter.Key) bool { return true })
	})
	l.check()
}

func TestConversion_ClusterFailsOver(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, 3)
	client := clusterClient(t, servers)
	store := redisstore.New(client, redisstore.Options{Timeout: 2 * time.Second, CachedRefusals: -1})
	defer store.Close()
	f := &failover{t: t, servers: servers, client: client, store: store}
	t.Run("ReplicaHangs", f.replicaHangs)
	t.Run("ReplicaIsBehind", f.replicaIsBehind)
	t.Run("UnderLoad", func(t *testing.T) {
		l := newLedger(t, store)
		l.run(func() {
			servers.Nodes[2].Kill()
			l.mayLose(func(k limiter.Key) bool { return f.masterOf(k) == 2 })
		})
		l.check()
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
	l := &limiter.Limit{
		Name: t.Name() + ".unused:1h", Rate: limiter.Rate{Count: 5, Window: time.Hour},
		Algorithm: limiter.Conversion, Noted: true, Conversion: 50,
	}
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
	in, err := f.store.Inspect(t.Context(), []limiter.Claim{c})
	if err != nil {
		t.Fatal(err)
	}
	return in.Statuses[0]
}

// replicaHangs: while a replica does not confirm that a note is gone, nothing is returned.
func (f *failover) replicaHangs(t *testing.T) {
	c := f.a(t, f.on(1, "hangs"), f.on(0, "ann"))
	f.take(t, c)
	impatient := redisstore.New(f.client, redisstore.Options{Timeout: 500 * time.Millisecond})
	defer impatient.Close()
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

// replicaIsBehind: a replica that was not connected when notes were removed, and becomes master all the same, has
// them still: each is returned once more, which is a permit of somebody else and a subject too many, and no more than that.
func (f *failover) replicaIsBehind(t *testing.T) {
	master, replica := f.node(t, 1), f.node(t, 4)
	ann := f.a(t, f.on(2, "behind"), f.on(1, "ann"))
	bob := f.a(t, ann.Key, f.on(0, "bob"))
	f.take(t, ann)
	f.take(t, bob)
	f.take(t, bob)
	eventually(t, "the replica has the note", func() bool {
		return master.Wait(t.Context(), 1, time.Second).Val() == 1
	})
	for node, args := range map[*redis.Client][]any{replica: {"config", "set", "masterauth", "wrong"}, master: {"client", "kill", "type", "replica"}} {
		if err := node.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the replica is cut off", func() bool {
		if master.Do(t.Context(), "client", "kill", "type", "replica").Err() != nil {
			return false
		}
		info := master.Info(t.Context(), "replication").Val()
		return strings.Contains(info, "connected_slaves:0\r")
	})
	returns := func() (int, error) {
		return f.store.Return(t.Context(), []*limiter.Limit{ann.Limit}, ann.Value)
	}
	if n, err := returns(); n != 1 || err != nil {
		t.Fatalf("returned %d, %v", n, err)
	}
	f.servers.Nodes[1].Kill()
	again := 0
	eventually(t, "the replica is the master", func() bool {
		n, err := returns()
		again = n
		return err == nil
	})
	if n, err := returns(); n != 0 || err != nil {
		t.Errorf("returned %d, %v a third time", n, err)
	}
	if s := f.status(t, bob); again != 1 || s.Used != 1 || s.Confirmed != 2 {
		t.Errorf("%d was returned twice; then %+v; want one, 1 of 2 open, and 2 confirmed for 1", again, s)
	}
}

// node is a client of one node.
func (f *failover) node(t *testing.T, i int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: f.servers.Nodes[i].Addr})
	t.Cleanup(func() { client.Close() })
	return client
}
