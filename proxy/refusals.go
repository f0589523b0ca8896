package proxy

import (
	"github.com/rs/zerolog"

	"github.com/weir-proxy/weir/limiter"
)

// A shadowRefusal is what a limit in shadow mode would have refused.
type shadowRefusal struct {
	window int // of the route
	key    limiter.Key
	banned bool
}

// logRefusals writes which rates refused the request, or would have in shadow mode,
// and reports whether any did refuse.
func (x *exchange) logRefusals(e *zerolog.Event) bool {
	if len(x.shadowed)+len(x.unfit) > 0 {
		e.Array("shadow", shadowsOf{x})
	}
	first, refused := x.refusing()
	if !refused {
		return false
	}
	o, w := &x.decision.Outcomes[first], x.window(first)
	e.Str("limit", w.of.name).Float64("wait_ms", ms(x.decision.Wait))
	x.logRefusal(e, w, x.claims[first].Key, o.Banned)
	if x.banned {
		e.Bool("ban_began", true)
	}
	for i := first + 1; i < len(x.decision.Outcomes); i++ {
		if x.alsoRefused(first, i) {
			e.Array("also", othersOf{x, first})
			break
		}
	}
	return true
}

// logRefusal writes one rate that refused: its name, under which key, and whether it
// did so because of a ban.
func (x *exchange) logRefusal(e *zerolog.Event, w *window, k limiter.Key, banned bool) {
	hash, masked := x.logKey(k)
	e.Str("rate", w.rate).Str("key", hash)
	if masked != "" {
		e.Str("masked", masked)
	}
	if banned {
		e.Bool("banned", true)
	}
}

// alsoRefused reports whether claim i was refused beside the first one that was. A
// rate is named once, however many secrets its key is counted under.
func (x *exchange) alsoRefused(first, i int) bool {
	return i > first && !x.decision.Outcomes[i].Allowed && x.windows[i] != x.windows[first] && x.ownClaim(i) == i
}

// othersOf are the refusals of an exchange but for the first.
type othersOf struct {
	*exchange
	first int
}

// MarshalZerologArray implements zerolog.LogArrayMarshaler.
func (x othersOf) MarshalZerologArray(a *zerolog.Array) {
	for i, o := range x.decision.Outcomes {
		if x.alsoRefused(x.first, i) {
			e := zerolog.Dict()
			x.logRefusal(e, x.window(i), x.claims[i].Key, o.Banned)
			a.Dict(e)
		}
	}
}

// shadowsOf are what limits in shadow mode say of an exchange.
type shadowsOf struct{ *exchange }

// MarshalZerologArray implements zerolog.LogArrayMarshaler.
func (x shadowsOf) MarshalZerologArray(a *zerolog.Array) {
	for _, s := range x.shadowed {
		e := zerolog.Dict()
		x.logRefusal(e, x.route.windows[s.window], s.key, s.banned)
		a.Dict(e)
	}
	for _, l := range x.unfit {
		a.Dict(zerolog.Dict().Str("limit", l.name).Bool("unfit", true))
	}
}
