package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/await"
)

// hearing is a store that remembers refusals, after it began to hear.
func (s *testStore) hearing() *redisstore.Store {
	s.t.Helper()
	store := redisstore.New(s.client, redisstore.Options{Timeout: patient, CachedRefusals: 1000})
	s.t.Cleanup(func() { store.Close() })
	s.until("the store hears", store.Hears)
	return store
}

// until waits for something that comes soon.
func (s *testStore) until(what string, holds func() bool) {
	s.t.Helper()
	await.Until(s.t, what, holds)
}

func decide(t testing.TB, s limiter.Store, c ...limiter.Claim) limiter.Decision {
	t.Helper()
	var d limiter.Decision
	if err := s.Take(t.Context(), c, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// A flood of what is refused costs Redis nothing, and hears how long to wait.
func TestRefusalCache_FloodCostsNothing(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	store := s.hearing()
	c := claim(2, time.Hour, 1)
	s.allowed(c, 2)
	first := decide(t, store, c...)
	before := s.scripts()
	const flood = 10_000
	for range flood {
		d := decide(t, store, c...)
		if d.Allowed || d.Wait > first.Wait || d.Wait < first.Wait-time.Minute || !d.Permit.IsZero() || d.Outcomes[0].Allowed ||
			d.At.Before(first.At) || d.At.Sub(first.At) > time.Minute {
			t.Fatalf("%+v after %+v", d, first)
		}
	}
	if n := s.scripts() - before; n > flood/100 {
		t.Errorf("%d scripts for %d refusals", n, flood)
	}
	// Others in the request make no difference, and a smaller cost is another question.
	other := claim(5, time.Hour, 1)[0]
	other.Limit.Name = "other"
	if d := decide(t, store, other, c[0]); d.Allowed || !d.Outcomes[0].Allowed || d.Outcomes[1].Allowed {
		t.Errorf("with another limit: %+v", d)
	} else if !d.Outcomes[0].Unknown || d.Outcomes[1].Unknown {
		t.Errorf("with another limit: %+v; want that only the other was not asked", d)
	}
	var d limiter.Decision
	if !store.Denied([]limiter.Claim{other, c[0]}, &d) || d.Allowed || d.Outcomes[1].Allowed || store.Denied([]limiter.Claim{other}, &d) {
		t.Errorf("denied, without asking: %+v; want the one that was refused, and no other", d)
	}
	if got := s.scripts() - before; got > flood/100 {
		t.Errorf("%d scripts", got)
	}
	s.left([]limiter.Claim{other}, 5)
}

// A smaller cost may pass while a larger is refused, and passes.
func TestRefusalCache_GoByCost(t *testing.T) {
	s := newTestStore(t)
	store := s.hearing()
	c := claim(10, time.Hour, 8)
	decide(t, store, c...)
	if decide(t, store, c...).Allowed {
		t.Fatal("16 of 10")
	}
	c[0].Cost = 2
	if !decide(t, store, c...).Allowed {
		t.Error("2 of 2 left refused")
	}
	if decide(t, store, c...).Allowed {
		t.Error("2 of none granted")
	}
	c[0].Cost = 3
	before := s.scripts()
	if decide(t, store, c...).Allowed || s.scripts() != before {
		t.Error("a larger cost than one refused was asked for")
	}
}

// A cached refusal ends when Redis said it would, not a millisecond later.
func TestRefusalCache_EndInTime(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	store := s.hearing()
	c := claim(1, 300*time.Millisecond, 1)
	for range 5 {
		first := decide(t, store, c...)
		for !first.Allowed { // a refusal is remembered from when it was asked for, a little early
			if first.Wait > 100*time.Millisecond {
				t.Fatalf("not free after the wait: %+v", first)
			}
			<-time.After(first.Wait)
			first = decide(t, store, c...)
		}
		d := decide(t, store, c...)
		for !d.Allowed && d.Wait > 50*time.Millisecond {
			d = decide(t, store, c...)
		}
		if d.Allowed { // this machine slept through the rest of the wait
			d.Wait = c[0].Limit.Rate.Window
		}
		<-time.After(d.Wait)
	}
}

// What makes room on one proxy makes room on all: nothing is refused for longer
// than the news takes.
func TestRefusalCache_AreClearedEverywhere(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	near, far := s.hearing(), s.hearing()
	for a := limiter.TokenBucket; a < limiter.Concurrent; a++ {
		for name, makeRoom := range map[string]func(c []limiter.Claim, p limiter.Permit) error{
			"refund": func(c []limiter.Claim, p limiter.Permit) error { return near.Refund(t.Context(), c, p) },
			"grant":  func(c []limiter.Claim, _ limiter.Permit) error { return near.Grant(t.Context(), c) },
			"reset":  func(c []limiter.Claim, _ limiter.Permit) error { return near.Reset(t.Context(), c) },
			"unban": func(c []limiter.Claim, _ limiter.Permit) error {
				if err := near.Reset(t.Context(), c); err != nil {
					return err
				}
				if err := near.Ban(t.Context(), c, time.Hour); err != nil {
					return err
				}
				s.until("banned", func() bool { return decide(t, far, c...).Outcomes[0].Banned })
				return near.Ban(t.Context(), c, 0)
			},
		} {
			c := claim(1, time.Hour, 1)
			c[0].Limit.Name, c[0].Limit.Algorithm = fmt.Sprint("l:", name), a
			p := decide(t, near, c...).Permit
			for _, store := range []limiter.Store{near, far} {
				if decide(t, store, c...).Allowed {
					t.Fatalf("%s %s: two of one", a, name)
				}
			}
			s.check(makeRoom(c, p))
			s.until(fmt.Sprint(a, " ", name, " is heard of"), func() bool { return decide(t, far, c...).Allowed })
		}
	}
}

// A key that somebody deletes by hand, telling nobody, is free within seconds; until
// then Redis is asked seldom.
func TestRefusalCache_SeeWhatIsDeletedByHand(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	store := s.hearing()
	c := claim(1, time.Hour, 1)
	decide(t, store, c...)
	if decide(t, store, c...).Allowed {
		t.Fatal("two of one")
	}
	before := s.scripts()
	s.check(s.client.FlushAll(t.Context()).Err())
	s.until("the deletion is seen", func() bool { return decide(t, store, c...).Allowed })
	if n := s.scripts() - before; n > 3 {
		t.Errorf("%d scripts until then; want hardly any", n)
	}
}

// A rate that was raised is asked for anew; what is held may be free at any time.
func TestRefusalCache_KnowTheirLimit(t *testing.T) {
	s := newTestStore(t)
	store := s.hearing()
	c := claim(1, time.Hour, 1)
	decide(t, store, c...)
	decide(t, store, c...)
	if !decide(t, store, claim(2, time.Hour, 1)...).Allowed {
		t.Error("refused by the old rate")
	}
	held := claim(1, time.Hour, 1)
	held[0].Limit.Algorithm = limiter.Concurrent
	p := decide(t, store, held...).Permit
	decide(t, store, held...)
	s.check(store.Refund(t.Context(), held, p))
	if !decide(t, store, held...).Allowed {
		t.Error("a slot was given back and is refused")
	}
}

// Who cannot hear remembers nothing, and hears again by itself.
func TestRefusalCache_NeedInvalidations(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	store := s.hearing()
	c := claim(1, time.Hour, 1)
	decide(t, store, c...)
	decide(t, store, c...)
	if store.Remembered() != 1 {
		t.Fatalf("%d refusals", store.Remembered())
	}
	s.do("acl", "setuser", "default", "resetchannels")
	s.do("client", "kill", "type", "pubsub")
	s.until("deaf", func() bool { return !store.Hears() })
	if store.Remembered() != 0 {
		t.Errorf("%d refusals while deaf", store.Remembered())
	}
	before := s.scripts()
	for range 10 {
		decide(t, store, c...)
	}
	if n := s.scripts() - before; n != 10 {
		t.Errorf("%d scripts for 10 refusals while deaf", n)
	}
	s.do("acl", "setuser", "default", "allchannels")
	s.until("hears again", store.Hears)
}

// However many keys are refused, few are remembered.
func TestRefusalCache_AreBounded(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	store := storeOn(t, s.client, redisstore.Options{Timeout: patient, CachedRefusals: 100})
	s.until("the store hears", store.Hears)
	for i := range 400 {
		c := claim(1, time.Hour, 1)
		c[0].Key = limiter.KeyOf(fmt.Sprint(i))
		decide(t, store, c...)
		decide(t, store, c...)
	}
	if n := store.Remembered(); n > 100 || n < 50 {
		t.Errorf("%d refusals are remembered, want up to 100", n)
	}
}

// A store on a client that is closed first ends all the same.
func TestStore_CloseEnds(t *testing.T) {
	s := newTestStore(t)
	client := redis.NewClient(&redis.Options{Addr: s.server.Addr})
	store := redisstore.New(client, redisstore.Options{})
	client.Close()
	store.Close()
	store.Close()
}

// A call that waited in vain is refused, not unknown, when others have learnt
// meanwhile that its key is.
func TestRefusalCache_AreRememberedAtTheDeadline(t *testing.T) {
	t.Parallel()
	s := newOwnTestStore(t)
	store := s.hearing()
	known, unknown := claim(1, time.Hour, 1), claim(1, time.Minute, 1)
	s.server.Signal(syscall.SIGSTOP)
	defer s.server.Signal(syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	answered := make(chan error, 1)
	var d limiter.Decision
	go func() { answered <- store.Take(ctx, known, &d) }()
	s.until("the call is under way", func() bool { return store.Flying() > 0 })
	store.Deny(known[0], time.Minute)
	if err := <-answered; err != nil || d.Allowed || d.Wait <= 0 {
		t.Errorf("%+v, %v; want a refusal", d, err)
	}
	if err := store.Take(ctx, unknown, &d); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("%v; want ErrUnavailable for what nobody knows of", err)
	}
}

// Who makes room does not wait until it is told of it.
func TestRefusalCache_OwnRoomIsKnownAtOnce(t *testing.T) {
	s := newTestStore(t)
	store := s.hearing()
	c := claim(1, time.Hour, 1)
	for range 50 {
		first := decide(t, store, c...)
		if d := decide(t, store, c...); !first.Allowed || d.Allowed {
			t.Fatalf("%+v, then %+v", first, d)
		}
		s.check(store.Refund(t.Context(), c, first.Permit))
		decide(t, store, c...)
		decide(t, store, c...)
		s.check(store.Reset(t.Context(), c))
	}
}

// Processes of earlier versions publish on another channel, which is heard as well.
func TestRefusalCache_HearsEarlierVersions(t *testing.T) {
	s := newTestStore(t)
	store := s.hearing()
	c := claim(1, time.Hour, 1)
	if !decide(t, store, c...).Allowed || decide(t, store, c...).Allowed || store.Remembered() != 1 {
		t.Fatalf("%d refusals are cached, want one", store.Remembered())
	}
	s.client.Publish(t.Context(), redisstore.DefaultPrefix+":room", "")
	s.until("the message is heard", func() bool { return store.Remembered() == 0 })
}

// Permits that come back by one call end the refusals of their windows, and no others. A process of a version that reads one
// window in a message cannot read the message, and forgets all of them.
func TestRefusals_SeveralComeBackTogether(t *testing.T) {
	t.Parallel()
	s := newTestStore(t)
	near, far := s.hearing(), s.hearing()
	messages := s.client.Subscribe(t.Context(), redisstore.DefaultPrefix+":freed")
	defer messages.Close()
	if _, err := messages.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all [][]limiter.Claim
	var permits []limiter.Permit
	of := func(a limiter.Algorithm, key string) []limiter.Claim {
		c := claim(1, time.Hour, 1)
		c[0].Limit.Algorithm, c[0].Key = a, limiter.KeyOf(key)
		far.Deny(c[0], time.Hour)
		return c
	}
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.GCRA} {
		all = append(all, of(a, a.String()))
		permits = append(permits, decide(t, near, all[len(all)-1]...).Permit)
	}
	of(limiter.TokenBucket, "kept")
	if given, errs := near.RefundInOneCall(t.Context(), all, permits); fmt.Sprint(given, errs) != "[1 1 1] [<nil> <nil> <nil>]" {
		t.Fatal(given, errs)
	}
	s.until("one refusal is left", func() bool { return far.Remembered() == 1 })
	m, err := messages.ReceiveMessage(t.Context())
	if err != nil || !strings.HasPrefix(m.Payload, "\n0:") || strings.Count(m.Payload, "\n") != len(all) {
		t.Errorf("message %q, %v", m, err)
	}
}

// Decisions that repeat a refusal say so, until Redis refuses anew, and those that repeat
// two do not.
func TestRefusalCache_SayWhatTheyRepeat(t *testing.T) {
	s := newTestStore(t)
	store := s.hearing()
	c := claim(1, time.Hour, 1)
	other := claim(1, time.Hour, 1)
	other[0].Limit.Name = "other"
	for _, claims := range [][]limiter.Claim{c, other} {
		if d := decide(t, store, claims...); d.Repeats != nil {
			t.Error("a grant repeats something")
		}
		if d := decide(t, store, claims...); d.Allowed || d.Repeats != nil {
			t.Errorf("%+v; want a refusal of Redis", d)
		}
	}
	first, second := decide(t, store, c...), decide(t, store, c...)
	if first.Repeats == nil || first.Repeats != second.Repeats || first.Repeats == decide(t, store, other...).Repeats {
		t.Errorf("%p, %p, and another %p", first.Repeats, second.Repeats, decide(t, store, other...).Repeats)
	}
	if d := decide(t, store, append(c, other...)...); d.Allowed || d.Repeats != nil {
		t.Errorf("%+v; want two refusals, of which it names none", d)
	}
	free := claim(1, time.Hour, 1)
	free[0].Limit.Name = "free"
	if d := decide(t, store, append(free, c...)...); d.Allowed || d.Repeats != first.Repeats {
		t.Errorf("%+v; want it to repeat the same", d)
	}
}
