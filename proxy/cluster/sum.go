package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weir-proxy/weir/proxy"
)

// A Minute is the statistics of one minute for all nodes together.
type Minute struct {
	At     time.Time // when it began
	Routes []RouteMinute
}

// A RouteMinute is the statistics of a route.
type RouteMinute struct {
	Route    string
	Requests int64
	Limits   []LimitMinute
}

// A LimitMinute is the decisions of a limit.
type LimitMinute struct {
	Limit         string
	Allowed       int64
	Refused       int64
	ShadowRefused int64
	Unavailable   int64
}

// Task returns the leader task that adds up the reports.
func (s *Statistics) Task() Task {
	return Task{Name: "statistics", Every: reportInterval, Run: s.sum}
}

// sum adds up the minutes that have changed. It is idempotent.
func (s *Statistics) sum(ctx context.Context, t Term) (string, error) {
	changed, err := s.store.changed(ctx)
	if err != nil {
		return "", err
	}
	for _, e := range changed {
		reports, err := s.store.reports(ctx, e.minute)
		if err != nil {
			return "", err
		}
		total := map[proxy.Series]int64{}
		for _, r := range reports {
			for _, tally := range r.Tallies {
				total[tally.Series] += tally.N
			}
		}
		if err := s.store.sum(ctx, t, e, tallies(total)); err != nil {
			return "", err
		}
	}
	if len(changed) == 0 {
		return "", nil
	}
	return fmt.Sprintf("added up %d minutes", len(changed)), nil
}

// Minutes returns the last n minutes including the current one, oldest first,
// without those in which nothing happened. n is limited by Kept.
func (s *Statistics) Minutes(ctx context.Context, n int) ([]Minute, error) {
	now, err := s.store.now(ctx)
	if err != nil {
		return nil, err
	}
	last := now.Unix() / 60
	first := last - min(int64(n), int64(StatisticsRetention/time.Minute)) + 1
	sums, err := s.store.sums(ctx, first, last)
	if err != nil {
		return nil, err
	}
	minutes := []Minute{}
	for i, sum := range sums {
		if len(sum) > 0 {
			minutes = append(minutes, Minute{At: minuteStart(first + int64(i)), Routes: routes(sum)})
		}
	}
	return minutes, nil
}

// routes groups sorted tallies by route and limit.
func routes(sum []Tally) []RouteMinute {
	var out []RouteMinute
	for _, t := range sum {
		if len(out) == 0 || out[len(out)-1].Route != t.Route {
			out = append(out, RouteMinute{Route: t.Route})
		}
		r := &out[len(out)-1]
		if t.Limit == "" {
			r.Requests += t.N
			continue
		}
		if len(r.Limits) == 0 || r.Limits[len(r.Limits)-1].Limit != t.Limit {
			r.Limits = append(r.Limits, LimitMinute{Limit: t.Limit})
		}
		l := &r.Limits[len(r.Limits)-1]
		switch t.Result {
		case "allowed":
			l.Allowed += t.N
		case "refused":
			l.Refused += t.N
		case "shadow_refused":
			l.ShadowRefused += t.N
		case "unavailable":
			l.Unavailable += t.N
		}
	}
	return out
}

func (t Tally) compare(other Tally) int {
	return cmp.Or(cmp.Compare(t.Route, other.Route), cmp.Compare(t.Limit, other.Limit), cmp.Compare(t.Result, other.Result))
}
