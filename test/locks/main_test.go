// Package locks tries package lock from outside, with whole processes: killed,
// stopped and continued, beside servers that fail over.
package locks

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // of the client: servers die here on purpose
	if role := os.Getenv("WEIR_LOCK_CHILD"); role != "" {
		os.Exit(play(role))
	}
	os.Exit(m.Run())
}

// client is one that keeps its deadlines and gives up a dead server quickly.
func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// eye is a client that ends with the test.
func eye(t testing.TB, addr string) *redis.Client {
	t.Helper()
	rdb := client(addr)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// process is a Locker with a client of its own, as another process has.
func process(t testing.TB, addr string, settings ...lock.LockerOption) *lock.Locker {
	t.Helper()
	l := lock.New(eye(t, addr), settings...)
	t.Cleanup(l.Close)
	return l
}

// minute ends with the test, or after a minute.
func minute(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func held(t testing.TB, l lock.Lockable, options ...lock.LockOption) *lock.Hold {
	t.Helper()
	h, err := l.Lock(minute(t), options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return h
}

// ended waits until h's context has ended.
func ended(t testing.TB, h *lock.Hold) {
	t.Helper()
	await.Until(t, "the hold has ended", func() bool { return h.Context().Err() != nil })
}

func released(t testing.TB, h *lock.Hold) {
	t.Helper()
	if err := h.Unlock(minute(t)); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

func server(t testing.TB) (*redistest.Server, *redis.Client) {
	t.Helper()
	s := redistest.Start(t)
	return s, eye(t, s.Addr)
}

// An input is what one call asked for. Owner is a number of its own for each
// acquisition.
type input struct {
	verb  verb
	owner int
	n     int64 // permits of a semaphore
}

type verb int

const (
	acquire verb = iota // exclusively: a mutex, a writer
	share               // as a reader, or permits of a semaphore
	reenter
	release
	// undo is what the lock does by itself after a call without an answer: it
	// gives back what the call may have taken, some time or never.
	undo
)

// An output is what one call brought.
type output struct {
	answer answer
	token  int64
}

type answer int

const (
	done answer = iota
	refusal
	unknown // no answer: it was executed some time, or never
)

// A state is what the lock is. Doubtful holds the owners whose taking was seen
// by nobody, so that undo knows what to give back.
type state struct {
	owner    int // 0: nobody
	count    int
	readers  int
	free     int64 // permits left
	token    int64
	doubtful owners
}

// model is what a kind with so many permits promises when nobody else is there.
func model(permits int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{free: permits} },
		Step: func(s, in, out any) (bool, any) {
			ok, next := step(s.(state), in.(input), out.(output))
			return ok, next
		},
		DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
	}
}

// fencedModel is model for a lock without permits whose tokens rise.
func fencedModel() porcupine.Model {
	m := model(0)
	unfenced := m.Step
	m.Step = func(s, in, out any) (bool, any) {
		ok, next := unfenced(s, in, out)
		stale := in.(input).verb == acquire && out.(output).answer == done && out.(output).token <= s.(state).token
		return ok && !stale, next
	}
	return m
}

// step says whether what happened can happen in s, and what comes of it.
func step(s state, in input, out output) (bool, state) {
	switch in.verb {
	case acquire:
		return s.acquire(in, out)
	case share:
		return s.share(in, out)
	case reenter:
		next := s
		next.count++
		return s.owner == in.owner, next
	case release:
		return s.release(in)
	default:
		return true, s.undo(in)
	}
}

func (s state) acquire(in input, out output) (bool, state) {
	can := s.owner == 0 && s.readers == 0
	next := s
	next.owner, next.count, next.token = in.owner, 1, max(s.token, out.token)
	switch {
	case out.answer == refusal:
		return !can, s
	case out.answer == unknown && !can:
		return true, s
	}
	return can, next
}

func (s state) share(in input, out output) (bool, state) {
	can := s.owner == 0 && s.free >= in.n
	next := s
	next.readers++
	next.free -= in.n
	switch {
	case out.answer == refusal:
		return !can, s
	case out.answer == unknown && !can:
		return true, s
	case out.answer == unknown:
		next.doubtful = next.doubtful.with(in.owner)
	}
	return can, next
}

func (s state) release(in input) (bool, state) {
	next := s
	if s.owner == in.owner {
		if next.count--; next.count == 0 {
			next.owner = 0
		}
		return true, next
	}
	next.readers--
	next.free += in.n
	return s.readers > 0, next
}

func (s state) undo(in input) state {
	if s.owner == in.owner {
		s.owner, s.count = 0, 0
	}
	if rest, ok := s.doubtful.without(in.owner); ok {
		s.doubtful = rest
		s.readers--
		s.free += in.n
	}
	return s
}

// Owners are some owners in order, so that equal sets are equal states; 0 is
// nobody.
type owners [mishaps]int

func (o owners) with(owner int) owners {
	o[0] = owner // the smallest place is free: there are no more mishaps than places
	slices.Sort(o[:])
	return o
}

func (o owners) without(owner int) (owners, bool) {
	i := slices.Index(o[:], owner)
	if i < 0 {
		return o, false
	}
	o[i] = 0
	slices.Sort(o[:])
	return o, true
}
