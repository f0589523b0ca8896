package proxy

import (
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
)

// A refusal is a rate that refused the request, or would have in shadow mode.
type refusal struct {
	window *window
	key    limiter.Key
	banned bool
	wait   time.Duration
}

// refusal returns the refusal of claim i.
func (a *admission) refusal(i int) refusal {
	return refusal{a.claims.windows[i], a.claims.claims[i].Key, a.decision.Outcomes[i].Banned, a.decision.Outcomes[i].Wait}
}

// logRefusals writes the rates that refused the request, or would have in shadow mode, and reports
// whether any did refuse it.
func (x *exchange) logRefusals(e *zerolog.Event, f logFields) bool {
	if len(x.shadowRefusals)+len(x.shadowErrors) > 0 && f.has(logShadow) {
		e.Array("shadow", shadowRefusalsOf{x})
	}
	first, refused := x.firstRefused()
	if !refused {
		return false
	}
	if f.has(logLimit) {
		e.Str("limit", x.claims.windows[first].of.Name)
	}
	if f.has(logWaitMS) {
		logMS(e, "wait_ms", x.decision.Wait)
	}
	x.logRefusal(e, x.refusal(first), f)
	if x.banned && f.has(logBanBegan) {
		e.Bool("ban_began", true)
	}
	for i := first + 1; i < len(x.decision.Outcomes) && f.has(logAlso); i++ {
		if x.alsoRefused(first, i) {
			e.Array("also", otherRefusals{x, first})
			break
		}
	}
	if f.has(logCachedRefusal) {
		x.logCachedRefusal(e)
	}
	return true
}

// logCachedRefusal writes the limits that refused the request, if the store repeated its refusal and did
// not evaluate the others: a Replay must not evaluate them either.
func (x *exchange) logCachedRefusal(e *zerolog.Event) {
	isUnknown := func(o limiter.Outcome) bool { return o.Unknown }
	if !slices.ContainsFunc(x.decision.Outcomes, isUnknown) {
		return
	}
	var space [64]byte
	b, last := space[:0], (*limit)(nil)
	for i := range x.decision.Outcomes {
		of := x.claims.windows[i].of
		if x.decision.Outcomes[i].Allowed || of == last {
			continue
		}
		if last = of; len(b) > 0 {
			b = append(b, ' ')
		}
		b = append(b, of.Name...)
	}
	e.Bytes("cached_refusal", b)
}

// logRefusal writes one rate that refused: its name, the key, and whether the key is banned.
func (x *exchange) logRefusal(e *zerolog.Event, r refusal, f logFields) {
	hash, masked := x.logKey(r.key)
	if f.has(logRate) {
		e.Str("rate", r.window.rate)
	}
	if f.has(logKey) {
		e.Str("key", hash)
	}
	if masked != "" && f.has(logMasked) {
		e.Str("masked", masked)
	}
	if r.banned && f.has(logBanned) {
		e.Bool("banned", true)
	}
}

// alsoRefused reports whether claim i was refused in addition to the first refused claim. A rate is
// reported once for both secrets.
func (x *exchange) alsoRefused(first, i int) bool {
	return i > first && !x.decision.Outcomes[i].Allowed && x.claims.windows[i] != x.claims.windows[first] && x.claims.currentIndex(i) == i
}

// otherRefusals are the refusals of an exchange except the first.
type otherRefusals struct {
	*exchange
	first int
}

// MarshalZerologArray implements zerolog.LogArrayMarshaler.
func (o otherRefusals) MarshalZerologArray(a *zerolog.Array) {
	for i := range o.decision.Outcomes {
		if o.alsoRefused(o.first, i) {
			e := zerolog.Dict()
			o.logRefusal(e, o.refusal(i), allFields)
			a.Dict(e)
		}
	}
}

// shadowRefusalsOf are the refusals of an exchange by limits in shadow mode.
type shadowRefusalsOf struct{ *exchange }

// MarshalZerologArray implements zerolog.LogArrayMarshaler.
func (r shadowRefusalsOf) MarshalZerologArray(a *zerolog.Array) {
	for _, s := range r.shadowRefusals {
		e := zerolog.Dict()
		r.logRefusal(e, s, allFields)
		a.Dict(e)
	}
	for _, l := range r.shadowErrors {
		a.Dict(zerolog.Dict().Str("limit", l.Name).Bool("unfit", true))
	}
}
