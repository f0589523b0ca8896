package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
)

// other is the testStore of another client on the same Redis and clock.
func (s *testStore) other(client string) *testStore {
	other := *s
	other.store = redisstore.NewWithTestClock(s.client, redisstore.Options{Timeout: patient, Client: client})
	s.t.Cleanup(func() { other.store.Close() })
	return &other
}

// Each client has the whole rate of every algorithm for itself, gives back and
// resets its own, and finds it again under its name; what counts overall is apart.
func TestScope_EachClientByItself(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	a, b, again := s.other("a"), s.other("b"), s.other("a")
	for algorithm := limiter.TokenBucket; algorithm <= limiter.Concurrent; algorithm++ {
		c := claim(3, time.Hour, 1)
		c[0].Limit.Algorithm, c[0].Limit.Scope = algorithm, limiter.PerClient
		p := a.allowed(c, 2).Permit
		b.left(c, 3)
		b.allowed(c, 3)
		again.left(c, 1)
		s.check(a.store.Refund(t.Context(), c, p))
		again.left(c, 2)
		b.left(c, 0)
		s.check(b.store.Reset(t.Context(), c))
		b.left(c, 3)
		a.left(c, 2)
		whole := claim(3, time.Hour, 1)
		whole[0].Limit.Algorithm = algorithm
		a.left(whole, 3)
		a.allowed(whole, 3)
		b.left(whole, 0)
		a.left(c, 2)
	}
	for _, key := range s.do("keys", "weir:*").([]any) {
		if ttl := s.do("pttl", key).(int64); ttl <= 0 {
			t.Errorf("%v lives for %d ms", key, ttl)
		}
	}
}

// A limiter that is shared with Redisson counts each client by itself if its hash
// says so, whatever the claim does; without a hash the claim writes its own scope.
func TestScope_OfRedissonsLimiter(t *testing.T) {
	t.Parallel()
	s := newClockedTestStore(t)
	a, b := s.other("a"), s.other("b")
	c := claim(3, time.Hour, 1)
	c[0].RedissonName, c[0].Limit.Scope = "own", limiter.PerClient
	p := a.allowed(c, 2).Permit
	if typ := s.do("hget", "own", "type"); typ != "1" {
		t.Errorf("type %v", typ)
	}
	if n := s.do("exists", "{own}:value", "{own}:permits"); n != int64(0) {
		t.Errorf("%v keys of all clients together", n)
	}
	b.left(c, 3)
	handle, err := a.store.RateLimiter("own", "")
	if err != nil {
		t.Fatal(err)
	}
	a.available(handle, 1)
	s.check(a.store.Refund(t.Context(), c, p))
	a.available(handle, 2)
	s.check(a.store.Grant(t.Context(), c))
	a.available(handle, 3)
	a.allowed(c, 3)
	a.denied(c, time.Hour)
	s.check(b.store.Reset(t.Context(), c))
	a.left(c, 0)
	s.check(a.store.Reset(t.Context(), c))
	a.left(c, 3)

	// The hash is the authority, also over the scope.
	if _, err := handle.UpdateRate(t.Context(), config(5, time.Hour, 0)); err != nil {
		t.Fatal(err)
	}
	a.allowed(c, 2)
	b.left(c, 3)

	c[0].Limit.Algorithm = limiter.GCRA
	var d limiter.Decision
	if err := a.store.Take(t.Context(), c, &d); !errors.Is(err, limiter.ErrInvalidLimit) {
		t.Errorf("a gcra that Redisson shares: %v", err)
	}
}

// A refusal is remembered for the scope that it was made for.
func TestScope_CachedRefusalsKnowIt(t *testing.T) {
	s := newTestStore(t)
	store := s.hearing()
	c := claim(1, time.Hour, 1)
	decide(t, store, c...)
	decide(t, store, c...)
	own := claim(1, time.Hour, 1)
	own[0].Limit.Scope = limiter.PerClient
	p := decide(t, store, own...)
	if !p.Allowed || decide(t, store, own...).Allowed {
		t.Fatal("a client's own count is not its own")
	}
	s.check(store.Refund(t.Context(), own, p.Permit))
	s.until("the refund is heard of", func() bool { return decide(t, store, own...).Allowed })
	if decide(t, store, c...).Allowed {
		t.Error("the refund reached what counts overall")
	}
}
