package cluster

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
)

// The kinds of alerts.
const (
	KindRefused = "refused" // a limit refused many requests within a minute
	KindUsed    = "used"    // a key used most of a limit
	// KindConversion is that few requests of a key were followed by a response of return_on.
	KindConversion = "conversion"
)

// An Alert is the message to a webhook. It holds the masked key and its hash,
// never the key.
type Alert struct {
	ID     string    `json:"id"` // stable across retries
	Kind   string    `json:"kind"`
	Text   string    `json:"text"` // the alert as a sentence
	Route  string    `json:"route"`
	Limit  string    `json:"limit"`
	Window string    `json:"window,omitempty"` // window of the rate
	At     time.Time `json:"at"`
	Count  int64     `json:"count"` // requests refused, permits used, or requests sent of which a response returned permits
	Of     int64     `json:"of"`    // threshold, or all requests if that is a share, or count of the rate, or requests sent
	Key    string    `json:"key,omitempty"`
	Masked string    `json:"masked,omitempty"`
	Share  int64     `json:"share,omitempty"` // the percentage that is used, if there are alerts about several
	// Low are, of an alert about a conversion, the keys of the limit below it, and Beside those of the other limits of the
	// route with most requests.
	Low    []SentKey `json:"low,omitempty"`
	Beside []SentKey `json:"beside,omitempty"`
}

// subject identifies what the alert is about: alerts with the same subject are
// deduplicated for a while.
func (a Alert) subject() string {
	about := []string{a.Kind, a.Route, a.Limit, a.Window}
	if a.Share > 0 {
		about = append(about, strconv.FormatInt(a.Share, 10))
	}
	return strings.Join(about, ":")
}

// repeat returns the minimum time between alerts with the subject of a: of one about several shares, the window
// of the rate.
func (a Alert) repeat(rules config.Alerts) time.Duration {
	if window, err := limiter.ParseDuration(a.Window); err == nil && a.Share > 0 {
		return window
	}
	return rules.Repeat
}

// named names a limit in a sentence.
func named(limit, route string) string {
	if route == "" {
		return limit + " of several routes"
	}
	return limit + " of route " + route
}

// findAlerts returns the alerts for the reports of one minute, in a fixed order.
func findAlerts(rules config.Alerts, reports map[string]minuteReport, at time.Time) []Alert {
	refused, decided, near := map[proxy.Series]int64{}, map[proxy.Series]int64{}, map[string]proxy.Near{}
	for _, r := range reports {
		for _, t := range r.Tallies {
			if t.Limit == "" {
				continue
			}
			switch t.Result {
			case "refused":
				refused[t.Series] += t.N
				fallthrough
			case "allowed":
				decided[proxy.Series{Route: t.Route, Limit: t.Limit}] += t.N
			}
		}
		for _, n := range r.Near {
			name := n.Route + ":" + n.Limit + ":" + n.Window
			if n.Used > near[name].Used {
				near[name] = n
			}
		}
	}
	var all []Alert
	for _, t := range tallies(refused) {
		of := decided[proxy.Series{Route: t.Route, Limit: t.Limit}]
		if t.N < rules.Refused || 100*t.N < rules.RefusedShare*of {
			continue
		}
		a := Alert{
			Kind: KindRefused, Route: t.Route, Limit: t.Limit, At: at, Count: t.N, Of: rules.Refused,
			Text: fmt.Sprintf("Weir: limit %s has refused %d requests within a minute.", named(t.Limit, t.Route), t.N),
		}
		if rules.RefusedShare > 0 {
			a.Of, a.Text = of, fmt.Sprintf("Weir: limit %s has refused %d of %d requests within a minute.", named(t.Limit, t.Route), t.N, of)
		}
		all = append(all, a)
	}
	for _, name := range slices.Sorted(maps.Keys(near)) {
		n := near[name]
		a := Alert{
			Kind: KindUsed, Route: n.Route, Limit: n.Limit, Window: n.Window, At: at, Count: n.Used, Of: n.Of, Key: n.Key, Masked: n.Masked,
			Text: fmt.Sprintf("Weir: a key has used %s in %s, limit %s.", cmp.Or(n.Money, fmt.Sprintf("%d of %d", n.Used, n.Of)), n.Window, named(n.Limit, n.Route)),
		}
		if len(rules.Used) == 1 {
			all = append(all, a)
			continue
		}
		for _, share := range rules.Used {
			if 100*n.Used >= share*n.Of {
				a.Share = share
				all = append(all, a)
			}
		}
	}
	for i := range all {
		all[i].ID = rand.Text()
	}
	return all
}
