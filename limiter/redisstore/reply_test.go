package redisstore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
	"github.com/weir-proxy/weir/limiter/reuse"
	"github.com/weir-proxy/weir/test/pooltest"
)

// Nothing but what the script can say is taken for an answer.
func TestReadDecision_IsStrict(t *testing.T) {
	claims := []limiter.Claim{{Limit: &limiter.Limit{Name: "l", Rate: limiter.Rate{Count: 5, Window: time.Second}}, Cost: 2}}
	for name, reply := range map[string]any{
		"nil":                 nil,
		"a text":              "OK",
		"empty":               []any{},
		"no decision":         []any{int64(5)},
		"no time":             []any{int64(0), int64(1), int64(3), int64(0)},
		"time as text":        []any{"5", int64(1), int64(3), int64(0)},
		"allowed 2":           []any{int64(5), int64(2), int64(3), int64(0)},
		"short":               []any{int64(5), int64(1), int64(3)},
		"text":                []any{int64(5), int64(1), "3", int64(0)},
		"negative":            []any{int64(5), int64(1), int64(-1), int64(4)},
		"above the rate":      []any{int64(5), int64(1), int64(6), int64(0)},
		"above the window":    []any{int64(5), int64(0), int64(0), int64(1001)},
		"wait with enough":    []any{int64(5), int64(1), int64(2), int64(10)},
		"no wait with little": []any{int64(5), int64(1), int64(1), int64(0)},
		"refused, not said":   []any{int64(5), int64(0), int64(2), int64(0)},
	} {
		var d limiter.Decision
		list, err := numbersOf(reply, nil)
		if err == nil {
			err = readOne(list, claims, &d)
		}
		if err == nil {
			t.Errorf("%s: read as %+v", name, d)
		}
	}
	at, rest, err := readTime([]int64{5, 0, 1, 700, 9}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var d limiter.Decision
	rest, err = readDecision(rest, at, claims, &d)
	if err != nil || len(rest) != 1 || d.Allowed || d.Wait != 700*time.Millisecond || d.Outcomes[0].Remaining != 1 {
		t.Errorf("a refusal: %+v %v %v", d, rest, err)
	}
}

// replyOf is a reply of these numbers behind a time.
func replyOf(numbers ...int64) string {
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n:1800000000000\r\n", 1+len(numbers))
	for _, n := range numbers {
		fmt.Fprintf(&out, ":%d\r\n", n)
	}
	return out.String()
}

// A decision that cannot be fails its own call, or its own shadow, whatever is wrong with it: the others of the batch are told
// theirs.
func TestBatch_BadDecisionFailsAlone(t *testing.T) {
	t.Parallel()
	bad := map[string][3]int64{
		"above the capacity": {1, 6, 0}, "beyond the horizon": {0, 0, 1 << 40}, "granted and banned": {1, -1, 7}, "refused by nobody": {0, 5, 0},
		"neither": {7, 3, 0}, "no number": {0, math.MinInt64, 1}, "negative wait": {0, 0, -5}, "another type, of none": {2, 0, 0},
	}
	good := [3]int64{1, 4, 0}
	var held chan struct{}
	var numbers []int64
	s := newSpeaker(t, func(_, call int) string {
		if call%2 == 1 {
			<-held
			return granted
		}
		return replyOf(numbers...)
	})
	store := s.store(t, Options{MaxInFlight: 1}, ClientConfig{})
	for name, one := range bad {
		for place := range 6 { // of three calls, of which the second has three shadows
			decisions := [6][3]int64{good, good, good, good, good, good}
			decisions[place] = one
			numbers, held = nil, make(chan struct{})
			for _, d := range decisions {
				numbers = append(numbers, d[:]...)
			}
			errs, beside := takeThree(t, store, held)
			for i, err := range errs {
				if at := []int{0, 1, 5}[i]; at == place && !errors.Is(err, wire.ErrReply) || at != place && err != nil {
					t.Errorf("%s at %d: the error of call %d is %v", name, place, i, err)
				}
			}
			if errs[1] == nil && len(beside) != 3 {
				t.Errorf("%s at %d: %d groups are decided", name, place, len(beside))
			}
			for i, b := range beside {
				if b.Failed != (2+i == place) {
					t.Errorf("%s at %d: group %d is %+v", name, place, i, b)
				}
			}
		}
	}
}

// takeThree has three calls go in one batch, behind one that is held, and returns their errors, and the groups of the second.
func takeThree(t *testing.T, store *Store, held chan struct{}) (errs [3]error, beside []limitertest.Beside) {
	t.Helper()
	var all sync.WaitGroup
	waiting := func(n int) func() bool {
		return store.only(t).is(func(q *queue) bool { return len(q.inFlight) == 1 && len(q.waiting) == n })
	}
	own := func(name string) []limiter.Claim {
		return []limiter.Claim{{Limit: bucketOf(name, 5), Key: limiter.KeyOf("k"), Cost: 1}}
	}
	all.Go(func() {
		var d limiter.Decision
		if err := store.Take(t.Context(), own("held"), &d); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "a batch is under way", waiting(0))
	for i := range errs {
		all.Go(func() {
			if i == 1 {
				_, beside, errs[i] = limitertest.TakeGroups(t.Context(), store, own("own1"), own("shadow0"), own("shadow1"), own("shadow2"))
			} else {
				var d limiter.Decision
				errs[i] = store.Take(t.Context(), own(fmt.Sprint("own", i)), &d)
			}
		})
		eventually(t, "the call waits", waiting(i+1))
	}
	close(held)
	all.Wait()
	return errs, beside
}

// Nothing of a request is left in what is used again for another one: it keeps memory, and what belongs to the store.
func TestPools_ResetsLeaveNothing(t *testing.T) {
	var c call
	pooltest.Fill(t, &c)
	c.reset()
	pooltest.Cleared(t, &c, "call.done")

	var g slotBatch
	pooltest.Fill(t, &g)
	p := &g.payload
	texts := [][]byte{p.keys, p.limits, p.windows, p.requests, p.follows, p.notes, p.name}
	g.reset()
	pooltest.Cleared(t, &g)
	for i, text := range texts { // keys and costs of others, for whoever still holds them
		if (text[0] == 0xDB) != reuse.Poisoned {
			t.Errorf("text %d of a batch begins with %#x", i, text[0])
		}
	}

	var b batch
	pooltest.Fill(t, &b)
	groups := len(b.groups)
	b.reset()
	if len(b.freeGroups) < groups {
		t.Errorf("%d of %d groups are kept", len(b.freeGroups), groups)
	}
	for _, g := range b.freeGroups[len(b.freeGroups)-groups:] {
		pooltest.Cleared(t, g)
	}
	pooltest.Cleared(t, &b, "batch.store", "batch.freeGroups")
}
