package cluster_test

import (
	"context"
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
