package redisstore_test

import (
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
)

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
