package redisstore_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/await"
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

// When the master dies under load, takes fail in time, and go on at the replica
// once it is master, with what it knew; no script is lost for good.
func TestStore_SentinelFailsOver(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	client := clientOf(t, redisstore.ClientConfig{Mode: redisstore.Sentinel, Addrs: servers.Addrs, Master: servers.Name, Timeout: 2 * time.Second, BreakRest: 100 * time.Millisecond})
	store := storeOn(t, client, redisstore.Options{Timeout: 2 * time.Second})
	c := claim(1000, time.Hour, 1)
	var d limiter.Decision
	for range 100 {
		d = decide(t, store, c...)
	}
	if n, err := client.Do(t.Context(), "wait", 1, patient.Milliseconds()).Int(); n != 1 || err != nil {
		t.Fatalf("%d replicas: %v", n, err)
	}
	servers.Master.Kill()
	start, failures := time.Now(), 0
	for {
		began := time.Now()
		err := store.Take(t.Context(), c, &d)
		if took := time.Since(began); took > patient {
			t.Errorf("a take took %v", took)
		}
		if err == nil {
			break
		}
		failures++
		if !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatal(err)
		}
		if time.Since(start) > await.Limit {
			t.Fatalf("not back after %v: %v", time.Since(start), err)
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Logf("back after %v and %d failures", time.Since(start).Round(time.Millisecond), failures)
	if failures == 0 || d.Outcomes[0].Remaining > 899 || d.Outcomes[0].Remaining < 890 {
		t.Errorf("%d failures, then %+v; want 899 left, or a few less", failures, d)
	}
}

// A master that hung, and comes back after another has replaced it, still grants what it was asked. Nobody waits for that,
// and the master that counts now has never granted it: it gives nothing back.
func TestStore_ReplacedMasterComesBack(t *testing.T) {
	t.Parallel()
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		servers := redistest.StartSentinel(t)
		config := redisstore.ClientConfig{Mode: redisstore.Sentinel, Addrs: servers.Addrs, Master: servers.Name, Timeout: time.Second, BreakRest: 100 * time.Millisecond}
		comesBack(t, clientOf(t, config), servers.Master)
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		servers := redistest.StartCluster(t, 3)
		client := clusterClient(t, servers)
		slot := client.ClusterKeySlot(t.Context(), "{"+limiter.KeyOf(t.Name()).String()+"}").Val()
		comesBack(t, client, servers.Nodes[int(slot)*3/16384])
	})
}

// comesBack has a master hang until it is replaced, and then come back.
func comesBack(t *testing.T, client redis.UniversalClient, master *redistest.Server) {
	store := storeOn(t, client, redisstore.Options{Timeout: time.Second, MaxInFlight: 1})
	limit := limitertest.LimitOf(limiter.FixedWindow, "back", limiter.Rate{Count: 1000, Window: time.Hour})
	c := []limiter.Claim{{Limit: limit, Key: limiter.KeyOf(t.Name()), Cost: 10}}
	var d limiter.Decision
	for range 20 {
		decide(t, store, c...)
	}
	old := redis.NewClient(&redis.Options{Addr: master.Addr})
	defer old.Close()
	master.Signal(syscall.SIGSTOP)
	if err := store.Take(t.Context(), c, &d); err == nil {
		t.Fatal("a master that hangs has decided")
	}
	eventually(t, "the other master decides", func() bool { return store.Take(t.Context(), c, &d) == nil })
	left := d.Outcomes[0].Remaining
	master.Signal(syscall.SIGCONT)
	eventually(t, "the old master follows", func() bool {
		return strings.Contains(old.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	for range 3 {
		left -= 10
		if d = decide(t, store, c...); d.Outcomes[0].Remaining != left {
			t.Fatalf("%d are left, want %d", d.Outcomes[0].Remaining, left)
		}
	}
}

// A send is a permit of an expectation's limit that is certainly taken: nobody has begun to return it.
type send struct {
	key, subject int
	claims       []limiter.Claim
	permit       limiter.Permit
	at           time.Time
}

// An expectation is what callers of a store know of it, while they take, return and refund at random. It counts what is
// open for certain, and each subject as confirmed as soon as somebody begins to return it.
type expectation struct {
	t     *testing.T
	store *redisstore.Store
	limit *limiter.Limit

	mu        sync.Mutex // guards what follows
	open      []send
	returns   map[[2]int]int // how often each subject of a key was returned, or one of it refunded
	confirmed []map[int]bool // by key, subjects
	slack     []int          // by key, permits that a failover may have lost
	answered  []int          // by key, requests since the last reset
}

const (
	limitedKeys   = 6
	subjectsOfKey = 400 // of each key
	callers       = 4
)

func newExpectation(t *testing.T, store *redisstore.Store) *expectation {
	e := &expectation{t: t, store: store, returns: map[[2]int]int{}, slack: make([]int, limitedKeys), answered: make([]int, limitedKeys)}
	e.limit = limitertest.LimitOf(limiter.Conversion, t.Name()+".unused:1h", limiter.Rate{Count: 5, Window: time.Hour})
	for range limitedKeys {
		e.confirmed = append(e.confirmed, map[int]bool{})
	}
	return e
}

func (e *expectation) key(i int) limiter.Key { return limiter.KeyOf(e.t.Name(), strconv.Itoa(i)) }

func (e *expectation) subject(key, i int) limiter.Key {
	return limiter.KeyOf(e.t.Name(), strconv.Itoa(key), strconv.Itoa(i))
}

// step takes, returns or refunds something.
func (e *expectation) step() {
	key, subject := rand.IntN(limitedKeys), rand.IntN(subjectsOfKey)
	switch n := rand.IntN(10); {
	case n < 6:
		e.take(key, subject)
	case n < 8:
		if s, ok := e.pick(); ok {
			e.giveBack(s.key, s.subject)
		}
	case n < 9:
		e.giveBack(key, subject) // most likely one that has nothing, or once more
	default:
		if s, ok := e.pick(); ok {
			e.begin(s.key, s.subject)
			_ = e.store.Refund(e.t.Context(), s.claims, s.permit)
		}
	}
}

func (e *expectation) take(key, subject int) {
	claims := []limiter.Claim{{Limit: e.limit, Key: e.key(key), Cost: 1, Value: e.subject(key, subject)}}
	e.mu.Lock()
	before := e.returns[[2]int{key, subject}]
	e.mu.Unlock()
	var d limiter.Decision
	if err := e.store.Take(e.t.Context(), claims, &d); err != nil {
		select { // an outage is answered at once
		case <-e.t.Context().Done():
		case <-time.After(time.Millisecond):
		}
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answered[key]++; !d.Allowed {
		return
	}
	if e.returns[[2]int{key, subject}] != before {
		return // it may be returned already
	}
	e.open = append(e.open, send{key, subject, claims, d.Permit, time.Now()})
	if open, most := e.openOf(key), 5+len(e.confirmed[key])+e.slack[key]; open > most {
		e.t.Errorf("%d are open of key %d; at most %d may be", open, key, most)
	}
}

// openOf is how many permits of a key are taken for certain.
func (e *expectation) openOf(key int) (n int) {
	for _, s := range e.open {
		if s.key == key {
			n++
		}
	}
	return n
}

// pick is one of the open permits.
func (e *expectation) pick() (send, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.open) == 0 {
		return send{}, false
	}
	return e.open[rand.IntN(len(e.open))], true
}

// begin forgets what is open of a subject.
func (e *expectation) begin(key, subject int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.returns[[2]int{key, subject}]++
	kept := e.open[:0]
	for _, s := range e.open {
		if s.key != key || s.subject != subject {
			kept = append(kept, s)
		}
	}
	e.open = kept
}

func (e *expectation) giveBack(key, subject int) {
	e.begin(key, subject)
	e.mu.Lock()
	e.confirmed[key][subject] = true
	e.mu.Unlock()
	_, _ = e.store.Return(e.t.Context(), []*limiter.Limit{e.limit}, e.subject(key, subject))
}

// run lets callers take steps around what happens, until requests for each key are answered again.
func (e *expectation) run(happens func()) {
	e.t.Helper()
	done := make(chan struct{})
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					e.step()
				}
			}
		})
	}
	defer work.Wait()
	defer close(done)
	e.untilAnswered()
	happens()
	e.untilAnswered()
}

// untilAnswered waits until requests for each key were answered, from now on. They may all be refused: what was taken while
// it could not be noted stays taken.
func (e *expectation) untilAnswered() {
	e.t.Helper()
	e.mu.Lock()
	clear(e.answered)
	e.mu.Unlock()
	eventually(e.t, "requests for each key are answered", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Min(e.answered) >= 40
	})
}

// mayLose is called after a master has died: what was granted of its keys within the last two seconds, and what
// callers are about to hear, may be lost, and with the notes of that, as much of others may be returned.
func (e *expectation) mayLose(has func(limiter.Key) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range limitedKeys {
		if has(e.key(key)) {
			e.slack[key] += callers
		}
	}
	kept := e.open[:0]
	for _, s := range e.open {
		if has(e.key(s.key)) && time.Since(s.at) < 2*time.Second {
			e.slack[s.key]++
			continue
		}
		kept = append(kept, s)
	}
	e.open = kept
}

// check compares what the store says in the end.
func (e *expectation) check() {
	e.t.Helper()
	for key := range limitedKeys {
		in, err := e.store.Inspect(e.t.Context(), []limiter.Claim{{Limit: e.limit, Key: e.key(key), Cost: 1}})
		if err != nil {
			e.t.Fatal(err)
		}
		s, open := in.Statuses[0], e.openOf(key)
		if int(s.Confirmed) > len(e.confirmed[key]) || int(s.Used) < open-e.slack[key] {
			e.t.Errorf("key %d: %+v, with %d open for certain, %d that may be lost, and %d subjects", key, s, open, e.slack[key], len(e.confirmed[key]))
		}
	}
	e.t.Logf("%d open for certain, %v may be lost", len(e.open), e.slack)
}
