package redisstore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/weir-proxy/weir/limiter"
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
	for name, one := range bad {
		for place := range 6 { // of three calls, of which the second has three shadows
			decisions := [6][3]int64{good, good, good, good, good, good}
			decisions[place] = one
			var numbers []int64
			for _, d := range decisions {
				numbers = append(numbers, d[:]...)
			}
			held := make(chan struct{})
			s := newSpeaker(t, func(_, call int) string {
				if call == 1 {
					<-held
					return granted
				}
				return replyOf(numbers...)
			})
			errs, shadows := takeThree(t, s.store(t, Options{MaxInFlight: 1}, ClientConfig{}), held)
			got := [6]error{errs[0], errs[1], shadows[0].Err, shadows[1].Err, shadows[2].Err, errs[2]}
			for i, err := range got {
				if i == place && !errors.Is(err, wire.ErrReply) || i != place && err != nil {
					t.Errorf("%s at %d: the error of %d is %v", name, place, i, err)
				}
			}
		}
	}
}

// takeThree has three calls go in one batch, behind one that is held, and returns their errors, and the shadows of the second.
func takeThree(t *testing.T, store *Store, held chan struct{}) (errs [3]error, shadows [3]limiter.Shadow) {
	t.Helper()
	var all sync.WaitGroup
	waiting := func(n int) func() bool {
		return func() bool {
			p := store.only(t)
			p.queue.mu.Lock()
			defer p.queue.mu.Unlock()
			return len(p.queue.inFlight) == 1 && len(p.queue.waiting) == n
		}
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
	for i := range shadows {
		shadows[i].Claims = own(fmt.Sprint("shadow", i))
	}
	for i := range errs {
		all.Go(func() {
			var d limiter.Decision
			if i == 1 {
				errs[i] = store.TakeWithShadows(t.Context(), own("own1"), &d, shadows[:])
			} else {
				errs[i] = store.Take(t.Context(), own(fmt.Sprint("own", i)), &d)
			}
		})
		eventually(t, "the call waits", waiting(i+1))
	}
	close(held)
	all.Wait()
	return errs, shadows
}
