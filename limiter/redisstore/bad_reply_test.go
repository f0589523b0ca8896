package redisstore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/limiter/limitertest"
	"github.com/weir-proxy/weir/limiter/redisstore/internal/wire"
)

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
