package redisstore_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/redisstore"
	"github.com/weir-proxy/weir/test/redistest"
)

// heardBy are the changes that a store hears of.
type heardBy struct {
	mu  sync.Mutex
	all []limiter.Change
}

func (h *heardBy) hear(c limiter.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, c)
}

func (h *heardBy) is(want ...limiter.Change) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.EqualFunc(h.all, want, func(a, b limiter.Change) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
}

// What one process announces all others hear of, in order, and it does not.
func TestChanges_AreHeardOfByOthers(t *testing.T) {
	s := newScene(t)
	near, far, third := s.hearing(), s.hearing(), s.hearing()
	var own, others, more heardBy
	near.OnChange(own.hear)
	far.OnChange(others.hear)
	third.OnChange(more.hear)
	changes := []limiter.Change{
		{Verb: limiter.VerbReset, Key: limiter.KeyOf("a"), Limits: []string{"sms.phone:1m", "sms.phone:1h"}},
		{Verb: limiter.VerbBan, Key: limiter.KeyOf("a"), Limits: []string{"sms.phone:1m"}, Ban: time.Hour},
		{Verb: limiter.VerbGrant, Key: limiter.KeyOf("b"), Limits: []string{"sms.phone:1m"}, Grant: 3},
	}
	for _, c := range changes {
		if err := near.Announce(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	s.until("all is heard of", func() bool { return others.is(changes...) && more.is(changes...) })
	if !own.is() {
		t.Errorf("%v: a process hears of its own changes", own.all)
	}
	if far.Remembered() != 0 || !far.Hears() {
		t.Error("a change makes the listener forget what it hears")
	}
	s.client.Publish(t.Context(), redisstore.DefaultPrefix+":room", "change:{nonsense")
	s.client.Publish(t.Context(), redisstore.DefaultPrefix+":room", `change:{"verb":"reset","key":"short"}`)
	if err := near.Announce(t.Context(), changes[0]); err != nil {
		t.Fatal(err)
	}
	s.until("what comes after nonsense is heard of", func() bool { return others.is(append(changes, changes[0])...) })
}

// In a cluster too, whichever node a process listens to.
func TestChanges_InACluster(t *testing.T) {
	client := clusterClient(t, redistest.StartCluster(t, 3))
	s := &scene{t: t, client: client}
	near, far := s.hearing(), s.hearing()
	var others heardBy
	far.OnChange(others.hear)
	c := limiter.Change{Verb: limiter.VerbBan, Key: limiter.KeyOf("a"), Limits: []string{"a.b:1m"}}
	if err := near.Announce(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s.until("the change is heard of", func() bool { return others.is(c) })
}

// A reset forgets what was granted in place of Redis as well, wherever that was: it is
// not reported any more.
func TestChanges_ResetForgetsWhatIsToBeReported(t *testing.T) {
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.SlidingLog, limiter.GCRA} {
		s := newScene(t)
		c := claim(10, time.Hour, 1)
		c[0].Limit.Algorithm = a
		near, far, other := slices.Clone(c), slices.Clone(c), slices.Clone(c)
		far[0].Key, other[0].Key = limiter.KeyOf("far"), limiter.KeyOf("other")
		s.server.Signal(syscall.SIGSTOP) // so that nothing is reported yet
		for _, c := range [][]limiter.Claim{near, far, other} {
			s.reported(c, 7)
		}
		reset := fmt.Sprintf(`change:{"from":"x","verb":"reset","key":"%s","limits":["%s"]}`, far[0].Key, far[0].Limit.Name)
		if !s.store.HearMessage(reset) || s.store.Unreported() != 2 {
			t.Errorf("%s: %d windows to report after a reset elsewhere, want 2", a, s.store.Unreported())
		}
		s.server.Signal(syscall.SIGCONT)
		if err := s.store.Reset(t.Context(), near); err != nil {
			t.Fatal(err)
		}
		s.quiet()
		s.left(near, 10)
		s.left(far, 10)
		s.left(other, 3)
	}
}

func TestChanges_WithoutRedis(t *testing.T) {
	s := newScene(t)
	s.server.Kill()
	if err := s.store.Announce(t.Context(), limiter.Change{Verb: limiter.VerbReset}); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("%v; want ErrUnavailable", err)
	}
}
