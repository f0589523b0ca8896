package cluster_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/test/redistest"
)

// The store's clock is known to some milliseconds only. Each request is nevertheless booked to its
// minute, and not those of five seconds to the minute before.
func TestStatistics_BookToTheMinuteThoughTheClockIsAMillisecondOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter()
		var calls atomic.Int64 // the statistics and the leader's task both ask for the clock
		stats := cluster.NewSkewedStatistics(c, func() time.Duration {
			return time.Duration(calls.Add(1)%5-2) * time.Millisecond
		})
		leader := cluster.NewLeader(cluster.LeaderOptions{ID: "a", Tasks: []cluster.Task{stats.Task()}})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { stats.Run(ctx) })
		run.Go(func() { leader.Run(ctx) })
		time.Sleep(50 * time.Millisecond)
		for range 20 * 600 {
			c.add("send", "", "allowed", 1)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(6 * time.Second) // the last minute is reported, and then added up
		minutes, err := stats.Minutes(t.Context(), 30)
		if err != nil || len(minutes) < 20 {
			t.Fatalf("minutes are %+v, %v; want 20", minutes, err)
		}
		for i, m := range minutes[:20] {
			if got := m.Routes[0].Requests; got < 599 || got > 601 {
				t.Errorf("minute %d has %d requests; want 600", i, got)
			}
		}
		cancel()
		run.Wait()
	})
}

// At no second of a minute does the number of the last 60 s begin anew.
func TestStatistics_TheLastMinuteIsSixtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter()
		stats := cluster.NewStatistics(nil, "", "a", c)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { stats.Run(ctx) })
		const rate = 32
		time.Sleep(500 * time.Millisecond) // no reading falls between the two counts of a second
		for second := range 4 * 60 {
			time.Sleep(time.Second)
			c.add("send", "", "allowed", rate)
			c.add("send", "phone", "allowed", rate)
			if second < 65 {
				continue
			}
			last, err := stats.Last(t.Context())
			if err != nil || len(last.Routes) != 1 {
				t.Fatalf("the last minute is %+v, %v; want one route", last, err)
			}
			r := last.Routes[0]
			if want := int64(60 * rate); r.Requests < want-rate || r.Requests > want+rate || r.Allowed != r.Requests || r.Limits[0].Allowed != r.Requests {
				t.Errorf("after %d s the last minute has %+v; want %d requests", second, r, want)
			}
			if !last.At.Equal(time.Now().Add(-time.Minute)) {
				t.Errorf("the last minute began %v; want 60 s ago", last.At)
			}
		}
		time.Sleep(135 * time.Second)
		if last, err := stats.Last(t.Context()); err != nil || len(last.Routes) != 0 {
			t.Errorf("after a pause of 135 s the last minute is %+v, %v; want nothing", last, err)
		}
		cancel()
		run.Wait()
	})
}

// Wherever in a minute a burst begins and ends, the last 60 s have what came in them, except what came
// in the last six seconds: the counts of a minute are not spread over it.
func TestStatistics_TheLastMinuteIsTrueToItsStep(t *testing.T) {
	for _, burst := range []struct{ from, to int }{{20, 50}, {0, 30}, {33, 87}, {59, 61}, {7, 8}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCounter()
			stats := cluster.NewStatistics(nil, "", "a", c)
			ctx, cancel := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { stats.Run(ctx) })
			const rate = 20
			came := make([]int64, 200) // by second
			time.Sleep(500 * time.Millisecond)
			for second := range came {
				if second >= burst.from && second < burst.to {
					c.add("send", "", "refused", rate)
					came[second] = rate
				}
				time.Sleep(time.Second)
				last, err := stats.Last(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got := int64(0)
				for _, r := range last.Routes {
					got += r.Refused
				}
				least, most := between(came, second-58, second-5), between(came, second-65, second+1)
				if got < least || got > most {
					t.Errorf("burst %v: after %d s the last 60 s have %d refusals; want %d to %d", burst, second+1, got, least, most)
				}
				if second >= burst.to+65 && got != 0 {
					t.Errorf("burst %v: %d s after its end the last 60 s have %d refusals", burst, second+1-burst.to, got)
				}
			}
			cancel()
			run.Wait()
		})
	}
}

// between returns the sum of the seconds from a to b, without b.
func between(came []int64, a, b int) (sum int64) {
	for i := max(a, 0); i < min(b, len(came)); i++ {
		sum += came[i]
	}
	return sum
}

// What comes between two steps, because the process was slow, is divided among them, and nothing is lost.
func TestStatistics_TheLastMinuteWithSlowReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter()
		stats := cluster.NewStatistics(nil, "", "a", c)
		for range 40 { // some 5 minutes
			time.Sleep(7300 * time.Millisecond)
			c.add("send", "", "allowed", 73)
			if err := stats.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		last, err := stats.Last(t.Context())
		if err != nil || len(last.Routes) != 1 || last.Routes[0].Allowed < 595 || last.Routes[0].Allowed > 605 {
			t.Errorf("the last minute is %+v, %v; want 600", last, err)
		}
	})
}

// Reports of version 0.1 have no steps.
func TestStatistics_TheLastMinuteWithReportsOfOlderVersions(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	now, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	minute := now.Unix() / 60
	report := fmt.Sprintf(`{"at":%d,"tallies":[{"route":"send","result":"refused","n":6}]}`, now.UnixMilli())
	if err := rdb.HSet(t.Context(), fmt.Sprint("test:{cluster}:minute:", minute), "old", report).Err(); err != nil {
		t.Fatal(err)
	}
	last, err := cluster.NewStatistics(rdb, "test", "c", newCounter()).Last(t.Context())
	if err != nil || len(last.Routes) != 1 || last.Routes[0].Refused != 6 {
		t.Errorf("the last minute is %+v, %v; want 6 refused", last, err)
	}
}

// Each node counts up to its own last report, through Redis too.
func TestStatistics_TheLastMinuteIsOfAllNodes(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	for _, node := range []string{"a", "b"} {
		c := newCounter()
		stats := cluster.NewStatistics(rdb, "test", node, c)
		c.add("send", "", "refused", 3)
		c.add("send", "", "rejected", 2)
		if err := stats.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	last, err := cluster.NewStatistics(rdb, "test", "c", newCounter()).Last(t.Context())
	if err != nil || len(last.Routes) != 1 || last.Routes[0].Requests != 10 || last.Routes[0].Refused != 6 || last.Routes[0].Rejected != 4 {
		t.Errorf("the last minute is %+v, %v; want 6 refused and 4 rejected", last, err)
	}
	s.Kill()
	if _, err := cluster.NewStatistics(rdb, "test", "c", newCounter()).Last(t.Context()); err == nil {
		t.Error("without Redis the last minute is known; want an error")
	}
}
