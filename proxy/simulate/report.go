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

// scarce is from how many keys on a memory store may let new ones share counts.
const scarce = 500_000

// A Report is what was read, and what the configurations would have done with it.
type Report struct {
	Counts
	Took   time.Duration     `json:"-"`
	Config string            `json:"config"` // its file
	Result proxy.ReplayTally `json:"result"`
	// Against is what the other configuration would have done, and Other its file.
	Other   string             `json:"other,omitempty"`
	Against *proxy.ReplayTally `json:"against,omitempty"`
	Notes   []string           `json:"notes"` // what the figures do not tell, and what to log
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

// notes say what the log does not tell, and what to do about it.
func (r *Report) notes(o Options) []string {
	notes := []string{}
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if r.Requests == 0 {
		say("no line is a request: is it an access log? For JSON with other names, say --field method=NAME, uri=NAME, time=NAME and so on")
		return notes
	}
	if r.Malformed > 0 {
		say("%d lines cannot be read and are left out", r.Malformed)
	}
	if r.Late > 0 {
		say("%d requests stand more than %v, or %d lines, behind later ones; they are taken at the time of the line before: sort the log by time", r.Late, window, maxPending)
	}
	if r.TooMany > 0 {
		say("%d requests were answered with 429 when they were logged; that counts as the answer of the upstream to those that pass here", r.TooMany)
	}
	for i, c := range []*config.Config{o.Config, o.Compare} {
		if c != nil && c.Store == config.StoreMemory && r.tallies()[i].Keys > scarce {
			say("%s: %d keys are counted at the end; with store: memory new ones share counts when there are more than it has room for, and are refused for others: see go doc ./limiter Memory", c.Files[0], r.tallies()[i].Keys)
		}
	}
	for i, t := range r.tallies() {
		if o.MaxKeys > 0 && t.Keys >= o.MaxKeys/2 { // from there on one client gets no more room
			say("%s: %d keys are counted at the end, for which there is hardly room here: new ones may share counts, and be refused for others; weir simulate on the command line has more room", []string{r.Config, r.Other}[i], t.Keys)
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
				say("route %s: %d requests are not looked up in all its lists, whose keys the log does not tell", rt.Name, rt.Unlisted)
			}
		}
	}
	for _, places := range slices.Sorted(maps.Keys(missing)) {
		say("the log does not tell %s: %d decisions of limits are left out; %s", places, missing[places], advice(places))
	}
	return slices.Compact(append(notes, r.missingFields(o)...))
}

// missingFields are the notes about what is missing in the whole log.
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
		notes = append(notes, fmt.Sprintf("the log does not tell how long %d requests took: limits on what is under way at a time see none of them beside another; log the duration ($request_time in nginx, %%D in Apache)", r.Untimed))
	}
	if hosts && r.Hostless > 0 && o.Host == "" {
		notes = append(notes, fmt.Sprintf("the log does not tell the host of %d requests, which are taken as for localhost: log it ($host in nginx, %%v in Apache), or say --host NAME", r.Hostless))
	}
	return notes
}

// unmatched are the notes about routes that are matched by what the log does not tell.
func unmatched(o Options, seen map[key.Origin]bool) (notes []string) {
	for _, c := range []*config.Config{o.Config, o.Compare} {
		if c == nil {
			continue
		}
		for _, rt := range c.Routes {
			for _, name := range slices.Sorted(maps.Keys(rt.Match.Headers)) {
				if place := (key.Origin{Source: key.Header, Name: name}); !seen[place] {
					notes = append(notes, fmt.Sprintf("route %s wants the field %s, of which the log does not tell: other routes take its requests, or none does; %s", rt.Name, name, advice(place.String())))
				}
			}
		}
	}
	return slices.Compact(notes)
}

// advice is how to have places logged.
func advice(places string) string {
	first, _, _ := strings.Cut(places, ", ")
	source, name, _ := strings.Cut(first, ":")
	switch source {
	case "header":
		return fmt.Sprintf("log the field %s as JSON ($http_%s in nginx), or say --field %s=NAME", name, strings.ReplaceAll(strings.ToLower(name), "-", "_"), first)
	case "client_ip":
		return "log the client's whole address (privacy.log_client: full)"
	case "query":
		return "log the query too, or say --field " + first + "=NAME"
	case "path":
		return "Weir's own log hides what is a key; use the log of the server in front"
	case "jwt":
		return "a verified token does not stand in a log"
	case "host":
		return "log the host, or say --field host=NAME"
	}
	return "have the server that logs write it as a field of JSON, and say --field " + first + "=NAME"
}

// tallies are the one or two that there are.
func (r *Report) tallies() []*proxy.ReplayTally {
	all := []*proxy.ReplayTally{&r.Result}
	if r.Against != nil {
		all = append(all, r.Against)
	}
	return all
}
