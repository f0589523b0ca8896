package cluster_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// A counter stands for the figures of one proxy.
type counter struct {
	mu     sync.Mutex
	counts map[proxy.Series]int64
	near   []proxy.Near
}

func newCounter() *counter { return &counter{counts: map[proxy.Series]int64{}} }

func (c *counter) add(route, limit, result string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[proxy.Series{Route: route, Limit: limit, Result: result}] += n
}

// Near implements cluster.Figures.
func (c *counter) Near() []proxy.Near {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.near
}

// Counts implements cluster.Figures.
func (c *counter) Counts() map[proxy.Series]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// counting are statistics of a node and what it counts; without Redis they are those of a single process.
func counting(rdb redis.UniversalClient) (*counter, *cluster.Statistics) {
	c := newCounter()
	return c, cluster.NewStatistics(rdb, "test", "a", c)
}

// told are all minutes together, as anybody reads them.
func told(t *testing.T, s *cluster.Statistics) map[proxy.Series]int64 {
	t.Helper()
	minutes, err := s.Minutes(t.Context(), 1440)
	check(t, err)
	all := map[proxy.Series]int64{}
	for _, m := range minutes {
		for _, r := range m.Routes {
			all[proxy.Series{Route: r.Route}] += r.Requests
			for _, l := range r.Limits {
				for result, n := range l.Counts() {
					all[proxy.Series{Route: r.Route, Limit: l.Limit, Result: result}] += *n
				}
			}
		}
	}
	maps.DeleteFunc(all, func(_ proxy.Series, n int64) bool { return n == 0 })
	return all
}

// Nodes count, report and report again, leaders come and go in the middle of it,
// and in the end everything was counted once.
func TestStatistics_AreWhatWasCounted(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	const nodes = 4
	var counters []*counter
	var all []*cluster.Statistics
	for i := range nodes {
		counters = append(counters, newCounter())
		all = append(all, cluster.NewStatistics(rdb, "test", fmt.Sprint("node", i), counters[i]))
	}
	var leaders []*candidate
	for i := range nodes {
		task := all[i].Task()
		task.Every = time.Millisecond
		leaders = append(leaders, runs(t, cluster.LeaderOptions{Client: rdb, ID: fmt.Sprint("node", i), Tasks: []cluster.Task{task}}))
	}
	var work sync.WaitGroup
	for i := range nodes {
		work.Go(func() {
			for range 300 {
				limit := fmt.Sprint("limit", rand.N(3))
				results := slices.Collect(maps.Keys((&view.LimitMinute{}).Counts()))
				result := results[rand.N(len(results))]
				counters[i].add("send", limit, result, rand.N(int64(5)))
				counters[i].add("send", "", "", 1)
				if err := all[i].Flush(t.Context()); err != nil {
					t.Errorf("report: %v", err)
				}
			}
		})
	}
	leaders[0].away()
	rdb.Del(t.Context(), "test:{cluster}:lead") // the lead is lost in the middle
	leaders[1].away()
	work.Wait()
	want := map[proxy.Series]int64{}
	for _, c := range counters {
		for series, n := range c.counts {
			want[series] += n
		}
	}
	maps.DeleteFunc(want, func(_ proxy.Series, n int64) bool { return n == 0 })
	await.Until(t, "all is added up", func() bool { return maps.Equal(told(t, all[3]), want) })
	if got := told(t, all[0])[proxy.Series{Route: "send"}]; got != 4*300 {
		t.Errorf("%d requests, want %d", got, 4*300)
	}
	names := rdb.Keys(t.Context(), "test:*").Val()
	if slices.ContainsFunc(names, func(name string) bool { return rdb.TTL(t.Context(), name).Val() == -1 }) {
		t.Errorf("some of %q live for ever", names)
	}
}

// A report that comes after its minute was added up is added to it.
func TestStatistics_TakeLateReports(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	c, stats := counting(rdb)
	task := stats.Task()
	term := leading(t, rdb)
	for round := range 3 {
		c.add("send", "", "", 1)
		check(t, stats.Flush(t.Context()))
		did, err := task.Run(t.Context(), term)
		check(t, err)
		if did != "added up 1 minute" && did != "added up 2 minutes" { // two if one ends meanwhile
			t.Errorf("the leader says %q", did)
		}
		if got := told(t, stats)[proxy.Series{Route: "send"}]; got != int64(round)+1 {
			t.Errorf("after %d requests the sum is %d", round+1, got)
		}
	}
	if did, err := task.Run(t.Context(), term); err != nil || did != "" {
		t.Errorf("with nothing new the leader says %q %v", did, err)
	}
}

// leading is the term of somebody who leads.
func leading(t *testing.T, rdb redis.UniversalClient) cluster.Term {
	t.Helper()
	rdb.HSet(t.Context(), "test:{cluster}:lead", "me:1", 1)
	token, err := cluster.Begin(t.Context(), rdb, "me:1")
	check(t, err)
	return cluster.Term{Token: token}
}

func TestStatistics_ADeposedLeaderWritesNoSum(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	c, stats := counting(rdb)
	old, term := leading(t, rdb), leading(t, rdb)
	c.add("send", "", "", 1)
	check(t, stats.Flush(t.Context()))
	if _, err := stats.Task().Run(t.Context(), old); !errors.Is(err, cluster.ErrDeposed) {
		t.Errorf("the deposed leader is answered %v; want ErrDeposed", err)
	}
	if got := told(t, stats); len(got) != 0 {
		t.Errorf("the deposed leader wrote %v", got)
	}
	if _, err := stats.Task().Run(t.Context(), term); err != nil || told(t, stats)[proxy.Series{Route: "send"}] != 1 {
		t.Errorf("the leader says %v, and wrote %v; want 1", err, told(t, stats))
	}
}

// What is counted while Redis is away is reported when it is back.
func TestStatistics_OutliveAnOutage(t *testing.T) {
	s := redistest.Start(t)
	rdb := dial(t, s.Addr)
	c, stats := counting(rdb)
	s.Kill()
	c.add("send", "", "", 7)
	if err := stats.Flush(t.Context()); err == nil {
		t.Error("a report without Redis is no error")
	}
	s.Restart()
	c.add("send", "", "", 5)
	check(t, stats.Flush(t.Context()))
	if _, err := stats.Task().Run(t.Context(), leading(t, rdb)); err != nil {
		t.Fatal(err)
	}
	if got := told(t, stats)[proxy.Series{Route: "send"}]; got != 12 {
		t.Errorf("%d requests are told of; want 12", got)
	}
}

func TestStatistics_ClosedMinutesTakeNoReports(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	now := rdb.Time(t.Context()).Val().Unix() / 60
	for _, row := range []struct {
		ago    int64
		closed bool
	}{{0, false}, {59, false}, {62, true}} {
		if err := cluster.Report(t.Context(), rdb, now-row.ago); (err != nil) != row.closed {
			t.Errorf("a report of %d minutes ago is answered %v", row.ago, err)
		}
	}
}

// Alone, each thing is told under the minute in which it happened, for a day.
func TestStatistics_MinuteByMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which begins on a full minute
		c, stats := counting(nil)
		running(t, stats.Run)
		runs(t, cluster.LeaderOptions{ID: "a", Tasks: []cluster.Task{stats.Task()}})
		began := time.Now().UTC()
		for minute := range 3 {
			for range 59 {
				time.Sleep(time.Second)
				c.add("send", "phone", "refused", int64(minute)+1)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		minutes, err := stats.Minutes(t.Context(), 10)
		if err != nil || len(minutes) != 3 {
			t.Fatalf("minutes are %+v, %v; want 3", minutes, err)
		}
		for i, m := range minutes {
			if got := m.Routes[0].Limits[0].Refused; !m.At.Equal(began.Add(time.Duration(i)*time.Minute)) || got != 59*(int64(i)+1) {
				t.Errorf("minute %d is %+v; want %d refused", i, m, 59*(i+1))
			}
		}
		if last, _ := stats.Minutes(t.Context(), 1); len(last) != 0 {
			t.Errorf("in the last minute %+v happened; want nothing", last)
		}
		time.Sleep(cluster.StatisticsRetention)
		c.add("send", "", "", 1)
		time.Sleep(time.Minute)
		if minutes, _ := stats.Minutes(t.Context(), 1e6); len(minutes) != 1 {
			t.Errorf("after a day %+v are told of; want the last one only", minutes)
		}
	})
}

// However many routes and limits there are, a report is bounded, and no request is
// left out of it. What limits count is not taken for requests.
func TestStatistics_AreBounded(t *testing.T) {
	c := newCounter()
	for i := range 3000 {
		c.add(fmt.Sprint("route", i), "", "", 1)
	}
	for i := range 100 {
		c.add("route0", fmt.Sprint("limit", i), "reserved", 1e6)
	}
	stats := cluster.NewStatistics(nil, "", "a", c)
	check(t, stats.Flush(t.Context()))
	if _, err := stats.Task().Run(t.Context(), cluster.Term{}); err != nil {
		t.Fatal(err)
	}
	all, requests := told(t, stats), int64(0)
	for series, n := range all {
		if series.Limit == "" {
			requests += n
		}
	}
	if got := all[proxy.Series{Route: "(others)"}]; len(all) != 2001 || got < 1000 || requests != 3000 {
		t.Errorf("3000 routes are told as %d, of which the others have %d, with %d requests", len(all), got, requests)
	}
}

// The store's clock is known to some milliseconds only. Each request is nevertheless booked to its
// minute, and not those of five seconds to the minute before.
func TestStatistics_BookToTheMinuteThoughTheClockIsAMillisecondOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounter()
		var calls atomic.Int64 // the statistics and the leader's task both ask for the clock
		stats := cluster.NewSkewedStatistics(c, func() time.Duration {
			return time.Duration(calls.Add(1)%5-2) * time.Millisecond
		})
		running(t, stats.Run)
		runs(t, cluster.LeaderOptions{ID: "a", Tasks: []cluster.Task{stats.Task()}})
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
	})
}

// At no second of a minute does the number of the last 60 s begin anew.
func TestStatistics_TheLastMinuteIsSixtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stats := counting(nil)
		running(t, stats.Run)
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
	})
}

// Wherever in a minute a burst begins and ends, the last 60 s have what came in them, except what came
// in the last six seconds: the counts of a minute are not spread over it.
func TestStatistics_TheLastMinuteIsTrueToItsStep(t *testing.T) {
	for _, burst := range []struct{ from, to int }{{20, 50}, {0, 30}, {33, 87}, {59, 61}, {7, 8}} {
		synctest.Test(t, func(t *testing.T) {
			c, stats := counting(nil)
			running(t, stats.Run)
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
				check(t, err)
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
		c, stats := counting(nil)
		for range 40 { // some 5 minutes
			time.Sleep(7300 * time.Millisecond)
			c.add("send", "", "allowed", 73)
			check(t, stats.Flush(t.Context()))
		}
		last, err := stats.Last(t.Context())
		if err != nil || len(last.Routes) != 1 || last.Routes[0].Allowed < 595 || last.Routes[0].Allowed > 605 {
			t.Errorf("the last minute is %+v, %v; want 600", last, err)
		}
	})
}

// Reports of version 0.1 have no steps.
func TestStatistics_TheLastMinuteWithReportsOfOlderVersions(t *testing.T) {
	rdb := dial(t, redistest.Start(t).Addr)
	now, err := rdb.Time(t.Context()).Result()
	check(t, err)
	minute := now.Unix() / 60
	report := fmt.Sprintf(`{"at":%d,"tallies":[{"route":"send","result":"refused","n":6}]}`, now.UnixMilli())
	check(t, rdb.HSet(t.Context(), fmt.Sprint("test:{cluster}:minute:", minute), "old", report).Err())
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
		check(t, stats.Flush(t.Context()))
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
