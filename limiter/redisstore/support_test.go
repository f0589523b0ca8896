package redisstore_test

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A testStore is a store on a Redis, with Redis's real clock or with one that the test sets.
type testStore struct {
	t      testing.TB
	server *redistest.Server
	client redis.UniversalClient
	store  *redisstore.Store
	held   bool // the test holds the clock
}

// newTestStore is on a Redis and a store that earlier tests may have used: nothing is left of them but what Redis knows of
// scripts.
func newTestStore(t testing.TB) *testStore {
	t.Helper()
	real, _ := storePools()
	return real.get(t)
}

// newClockedTestStore is newTestStore with a clock that stands at 1,800,000,000,000 ms.
func newClockedTestStore(t testing.TB) *testStore {
	t.Helper()
	_, clocked := storePools()
	return clocked.get(t)
}

// newOwnTestStore is newTestStore on a Redis and a store that no other test uses: it may be stopped, killed and configured.
func newOwnTestStore(t testing.TB) *testStore {
	t.Helper()
	s := onRedis(t)
	s.store = redisstore.New(s.client, redisstore.Options{Timeout: patient, CachedRefusals: -1})
	return s
}

func newOwnClockedTestStore(t testing.TB) *testStore {
	t.Helper()
	s := onRedis(t)
	s.held, s.store = true, redisstore.NewWithTestClock(s.client, redisstore.Options{Timeout: patient})
	return s
}

// onRedis has no store yet, and closes the one that it gets.
func onRedis(t testing.TB) *testStore {
	t.Helper()
	s := &testStore{t: t, server: redistest.Start(t)}
	s.client = connect(t, s.server.Addr)
	t.Cleanup(func() { s.store.Close() })
	return s
}

// A storePool has the stores that tests have left for later ones: to make the scripts of a store takes longer than most tests.
type storePool struct {
	start func(testing.TB) *testStore

	mu     sync.Mutex // guards what follows
	stores []*testStore
	ends   []func()
}

var storePools = sync.OnceValues(func() (real, clocked *storePool) {
	return &storePool{start: newOwnTestStore}, &storePool{start: newOwnClockedTestStore}
})

func (p *storePool) get(t testing.TB) *testStore {
	t.Helper()
	store := p.take()
	if store == nil {
		store = p.start(untilEnd{t, p})
	}
	borrowed := *store
	borrowed.t = t
	borrowed.empty()
	t.Cleanup(func() {
		if t.Failed() {
			return // it may be in any state
		}
		await.Until(t, "all calls are answered", func() bool { return store.store.Flying() == 0 && store.store.Unreported() == 0 })
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stores = append(p.stores, store)
	})
	return &borrowed
}

// take returns nil if all stores are in use.
func (p *storePool) take() (store *testStore) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.stores) - 1; last >= 0 {
		store, p.stores = p.stores[last], p.stores[:last]
	}
	return store
}

// close ends all stores and their Redis.
func (p *storePool) close() {
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

// untilEnd is a test whose cleanup comes when its pool is closed.
type untilEnd struct {
	testing.TB
	pool *storePool
}

func (u untilEnd) Cleanup(f func()) {
	u.pool.mu.Lock()
	defer u.pool.mu.Unlock()
	u.pool.ends = append(u.pool.ends, f)
}

// empty leaves nothing in Redis but the clock that a test holds, as it was at first.
func (s *testStore) empty() {
	s.t.Helper()
	s.do("flushall")
	if s.held {
		s.do("set", redisstore.TestClock, int64(1_800_000_000_000))
	}
}

// clientOf makes a client that ends with the test, with the time that a busy machine takes unless c says otherwise.
func clientOf(t testing.TB, c redisstore.ClientConfig) redis.UniversalClient {
	t.Helper()
	c.Timeout = cmp.Or(c.Timeout, patient)
	client, err := redisstore.NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// storeOn makes a store that ends with the test.
func storeOn(t testing.TB, client redis.UniversalClient, o redisstore.Options) *redisstore.Store {
	store := redisstore.New(client, o)
	t.Cleanup(func() { store.Close() })
	return store
}

func (s *testStore) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// scripts is how many scripts Redis ran.
func (s *testStore) scripts() int {
	s.t.Helper()
	return redistest.Scripts(s.t, s.client).Calls
}

func (s *testStore) advance(d time.Duration) {
	s.t.Helper()
	s.do("incrby", redisstore.TestClock, d.Milliseconds())
}

// do runs one command in Redis.
func (s *testStore) do(args ...any) any {
	s.t.Helper()
	v, err := s.client.Do(s.t.Context(), args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return v
}

func (s *testStore) take(claims []limiter.Claim) limiter.Decision {
	s.t.Helper()
	var d limiter.Decision
	if err := s.store.Take(s.t.Context(), claims, &d); err != nil {
		s.t.Fatalf("take: %v", err)
	}
	return d
}

// allowed takes n times and wants all granted.
func (s *testStore) allowed(claims []limiter.Claim, n int) limiter.Decision {
	s.t.Helper()
	var d limiter.Decision
	for i := range n {
		if d = s.take(claims); !d.Allowed {
			s.t.Fatalf("take %d of %d: refused, want granted: %+v", i+1, n, d)
		}
	}
	return d
}

func (s *testStore) denied(claims []limiter.Claim, wait time.Duration) {
	s.t.Helper()
	if d := s.take(claims); d.Allowed || d.Wait != wait {
		s.t.Fatalf("allowed %v wait %v, want a refusal with wait %v", d.Allowed, d.Wait, wait)
	}
}

// left is about what is left when all calls are answered: a refund after a refusal is not waited for by its request.
func (s *testStore) left(claims []limiter.Claim, want int64) {
	s.t.Helper()
	s.until("all calls are answered", func() bool { return s.store.Flying() == 0 })
	var d limiter.Decision
	if err := s.store.Peek(s.t.Context(), claims, &d); err != nil {
		s.t.Fatalf("peek: %v", err)
	}
	if got := d.Outcomes[0].Remaining; got != want {
		s.t.Fatalf("%d permits left, want %d", got, want)
	}
}

func claim(count int64, window time.Duration, cost int64) []limiter.Claim {
	return []limiter.Claim{{
		Limit: &limiter.Limit{Name: "sms.phone:w", Rate: limiter.Rate{Count: count, Window: window}},
		Key:   limiter.KeyOf("+8613800138000"), Cost: cost,
	}}
}

// name is the limiter's name in Redis.
func name(c []limiter.Claim) string {
	return redisstore.WindowName(redisstore.DefaultPrefix, c[0].Limit.Name, c[0].Key)
}

// seed is WEIR_SEED, to repeat what failed, or this.
func seed(usual uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("WEIR_SEED"), 10, 64); err == nil {
		return n
	}
	return usual
}
