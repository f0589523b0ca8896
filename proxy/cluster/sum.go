package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/view"
)

// Task returns the leader task that adds up the reports.
func (s *Statistics) Task() Task {
	return Task{Name: "statistics", Every: reportInterval, Run: s.sum}
}

// sum adds up the minutes that have changed. It is idempotent.
func (s *Statistics) sum(ctx context.Context, t Term) (string, error) {
	switch minutes, err := s.state.addUp(ctx, t); {
	case err != nil || minutes == 0:
		return "", err
	case minutes == 1:
		return "added up 1 minute", nil
	default:
		return fmt.Sprintf("added up %d minutes", minutes), nil
	}
}

// sumOf adds up the reports of a minute.
func sumOf(reports map[string]minuteReport) []Tally {
	total := map[proxy.Series]int64{}
	for _, r := range reports {
		for _, t := range r.Tallies {
			total[t.Series] += t.N
		}
	}
	return tallies(total)
}

// Minutes returns the last n minutes including the current one, oldest first,
// without those in which nothing happened. n is limited by Kept.
func (s *Statistics) Minutes(ctx context.Context, n int) ([]view.Minute, error) {
	now, err := s.state.now(ctx)
	if err != nil {
		return nil, err
	}
	last := now.Unix() / 60
	first := last - min(int64(n), int64(StatisticsRetention/time.Minute)) + 1
	sums, err := s.state.sums(ctx, first, last)
	if err != nil {
		return nil, err
	}
	minutes := []view.Minute{}
	for i, sum := range sums {
		if len(sum) > 0 {
			minutes = append(minutes, view.Minute{At: minuteStart(first + int64(i)), Routes: routes(sum)})
		}
	}
	return minutes, nil
}

// reportDelay is how long after the end of a step a node may need to report it.
const reportDelay = 500 * time.Millisecond

// Last returns the statistics of 60 seconds, of each node up to its last report, which is at most
// six seconds old. A node that has not reported since then counts as without requests.
func (s *Statistics) Last(ctx context.Context) (view.Minute, error) {
	now, err := s.state.now(ctx)
	if err != nil {
		return view.Minute{}, err
	}
	recent := map[int64]map[string]minuteReport{}
	for minute := now.Unix()/60 - 2; minute <= now.Unix()/60; minute++ {
		if recent[minute], err = s.state.reports(ctx, minute); err != nil {
			return view.Minute{}, err
		}
	}
	return view.Minute{At: now.Add(-time.Minute).UTC(), Routes: routes(lastTallies(recent, now))}, nil
}

// lastTallies returns the counts of the last 60 seconds from the reports of the last minutes. Of a step
// that is only in part inside, it is that part of the counts.
func lastTallies(recent map[int64]map[string]minuteReport, now time.Time) []Tally {
	ends := map[string]time.Time{} // the end of the last 60 seconds by node
	for _, reports := range recent {
		for node, r := range reports {
			end := ends[node]
			if end.IsZero() { // a node without new counts does not report
				end = stepStart(stepOf(now.Add(-reportDelay)))
			}
			ends[node] = time.UnixMilli(min(max(end.UnixMilli(), r.At), now.UnixMilli()))
		}
	}
	estimates := map[proxy.Series]float64{}
	for minute, reports := range recent {
		for node, r := range reports {
			for _, t := range r.Tallies {
				estimates[t.Series] += t.last(minuteStart(minute), ends[node])
			}
		}
	}
	counts := map[proxy.Series]int64{}
	for series, n := range estimates {
		if n := int64(math.Round(n)); n > 0 {
			counts[series] = n
		}
	}
	return tallies(counts)
}

// last returns how many of t, which is of the minute that starts at from, are within the 60 seconds
// until end. Those of an older version, without steps, count as if they had come evenly.
func (t Tally) last(from, end time.Time) (n float64) {
	steps, length := t.Steps, reportInterval
	if steps == nil {
		steps, length = []int64{t.N}, time.Minute
	}
	for i, count := range steps {
		first := from.Add(time.Duration(i) * length)
		last := first.Add(length)
		if last.After(end) {
			last = end
		}
		part := 1.0
		if begin := end.Add(-time.Minute); begin.After(first) {
			part = max(float64(last.Sub(begin))/float64(last.Sub(first)), 0)
		}
		n += part * float64(count)
	}
	return n
}

// routes groups sorted tallies by route and limit.
func routes(sum []Tally) []view.RouteMinute {
	out := []view.RouteMinute{}
	var counts map[string]*int64 // of the last limit
	for _, t := range sum {
		if len(out) == 0 || out[len(out)-1].Route != t.Route {
			out = append(out, view.RouteMinute{Route: t.Route})
		}
		r := &out[len(out)-1]
		if t.Limit == "" {
			r.Requests += t.N
			t.addTo(map[string]*int64{
				"allowed": &r.Allowed, "refused": &r.Refused, "shadow_refused": &r.ShadowRefused, "rejected": &r.Rejected,
				"unavailable": &r.Unavailable,
			})
			continue
		}
		if len(r.Limits) == 0 || r.Limits[len(r.Limits)-1].Limit != t.Limit {
			r.Limits = append(r.Limits, view.LimitMinute{Limit: t.Limit})
			counts = r.Limits[len(r.Limits)-1].Counts()
		}
		t.addTo(counts)
	}
	return out
}

// addTo adds t to the count of its result, if that is one of them.
func (t Tally) addTo(counts map[string]*int64) {
	if n := counts[t.Result]; n != nil {
		*n += t.N
	}
}

func (t Tally) compare(other Tally) int {
	return cmp.Or(cmp.Compare(t.Route, other.Route), cmp.Compare(t.Limit, other.Limit), cmp.Compare(t.Result, other.Result))
}
