package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
)

// scarce is the number of keys above which a memory store may use overflow counts.
const scarce = 500_000

// A Report is the result of a simulation.
type Report struct {
	Counts
	Took   time.Duration     `json:"-"`
	Config string            `json:"config"` // its file
	Result proxy.ReplayTally `json:"result"`
	// Against is the result of the other configuration, and Other its file.
	Other   string             `json:"other,omitempty"`
	Against *proxy.ReplayTally `json:"against,omitempty"`
	Notes   []string           `json:"notes"` // limitations of the numbers, and what to log
}

func newReport(o Options, read *mergeReader, replays []*proxy.Replay, took time.Duration) *Report {
	r := &Report{Counts: read.Counts, Took: took, Config: o.Config.Files[0], Result: replays[0].Finish()}
	if o.Compare != nil {
		against := replays[1].Finish()
		r.Other, r.Against = o.Compare.Files[0], &against
	}
	r.Notes = r.notes(o)
	if r.Requests > 0 {
		r.Notes = append(r.Notes, unmatched(o, read.seen)...)
	}
	return r
}

// notes returns remarks about missing data, and what to do about it.
func (r *Report) notes(o Options) []string {
	notes := []string{}
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if r.Requests == 0 {
		say("no line is a request: is it an access log? For JSON with other names, use --field method=NAME, uri=NAME, time=NAME and so on")
		return notes
	}
	if r.Malformed > 0 {
		say("%d lines cannot be read and were skipped", r.Malformed)
	}
	if r.Late > 0 {
		say("%d requests are more than %v, or %d lines, after later ones, and were replayed at the time of the previous line: sort the log by time", r.Late, window, maxPending)
	}
	if r.TooMany > 0 {
		say("%d requests have the logged status 429, which counts as the response of the upstream if they pass here", r.TooMany)
	}
	for i, c := range []*config.Config{o.Config, o.Compare} {
		if c != nil && c.Store == config.StoreMemory && r.tallies()[i].Keys > scarce {
			say("%s: %d keys have counts at the end; with store: memory, new keys beyond its capacity share counts, and may be refused because of others: see go doc ./limiter Memory", c.Files[0], r.tallies()[i].Keys)
		}
	}
	for i, t := range r.tallies() {
		if o.MaxKeys > 0 && t.Keys >= o.MaxKeys/2 { // beyond this one client gets no more capacity
			say("%s: %d keys have counts at the end, near the capacity here: new keys may share counts, and be refused because of others; weir simulate on the command line has more capacity", []string{r.Config, r.Other}[i], t.Keys)
		}
	}
	missing := map[string]int64{}
	for _, t := range r.tallies() {
		for _, rt := range t.Routes {
			for _, l := range rt.Limits {
				if l.Unknown > 0 {
					missing[strings.Join(l.Missing, ", ")] += l.Unknown
				}
			}
			if rt.Unlisted > 0 {
				say("route %s: %d requests were not looked up in all its lists, because the log lacks their keys", rt.Name, rt.Unlisted)
			}
		}
	}
	for _, places := range slices.Sorted(maps.Keys(missing)) {
		say("the log lacks %s: %d decisions of limits were skipped; %s", places, missing[places], advice(places))
	}
	return slices.Compact(append(notes, r.missingFields(o)...))
}

// missingFields returns notes about data that is missing in the whole log.
func (r *Report) missingFields(o Options) (notes []string) {
	held, hosts := false, false
	for _, c := range []*config.Config{o.Config, o.Compare} {
		if c == nil {
			continue
		}
		for _, rt := range c.Routes {
			hosts = hosts || rt.Match.Host != ""
			for _, l := range rt.Limits {
				held = held || l.Algorithm == limiter.Concurrent
			}
		}
	}
	if held && r.Untimed > 0 {
		notes = append(notes, fmt.Sprintf("the log lacks the duration of %d requests: limits with concurrent do not count them; log the duration ($request_time in nginx, %%D in Apache)", r.Untimed))
	}
	if hosts && r.Hostless > 0 && o.Host == "" {
		notes = append(notes, fmt.Sprintf("the log lacks the host of %d requests; localhost is used: log it ($host in nginx, %%v in Apache), or use --host NAME", r.Hostless))
	}
	return notes
}

// unmatched returns notes about routes with conditions on data that is missing in the log.
func unmatched(o Options, seen map[key.Origin]bool) (notes []string) {
	for _, c := range []*config.Config{o.Config, o.Compare} {
		if c == nil {
			continue
		}
		for _, rt := range c.Routes {
			for _, name := range slices.Sorted(maps.Keys(rt.Match.Headers)) {
				if place := (key.Origin{Source: key.Header, Name: name}); !seen[place] {
					notes = append(notes, fmt.Sprintf("route %s requires the field %s, which the log lacks: its requests match other routes, or none; %s", rt.Name, name, advice(place.String())))
				}
			}
		}
	}
	return slices.Compact(notes)
}

// advice describes how to log places.
func advice(places string) string {
	first, _, _ := strings.Cut(places, ", ")
	source, name, _ := strings.Cut(first, ":")
	switch source {
	case "header":
		return fmt.Sprintf("log the field %s as JSON ($http_%s in nginx), or use --field %s=NAME", name, strings.ReplaceAll(strings.ToLower(name), "-", "_"), first)
	case "client_ip":
		return "log the client's whole address (privacy.log_client: full)"
	case "query":
		return "log the query too, or use --field " + first + "=NAME"
	case "path":
		return "Weir's own log redacts keys; use the log of the server in front"
	case "jwt":
		return "logs do not contain verified tokens"
	case "host":
		return "log the host, or use --field host=NAME"
	}
	return "log it as a JSON field, and use --field " + first + "=NAME"
}

// tallies returns the one or two results.
func (r *Report) tallies() []*proxy.ReplayTally {
	all := []*proxy.ReplayTally{&r.Result}
	if r.Against != nil {
		all = append(all, r.Against)
	}
	return all
}
