package view

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/directive"
)

// ErrKeyQuery reports that a query about a key, or a change of it, is not valid: no limit counts by
// the key, no request can have the value, or a ban has no duration. The error says what to write
// instead and never contains a value.
var ErrKeyQuery = errors.New("not a valid key query")

// A KeyPair names a key as operators write it: phone=+8613800138000. Key is the name of a key of
// the configuration, or an origin such as header:X-Phone. Value is the value in a request, or the
// KeyID of an entry, "id:...", for a key whose value the operator does not know.
type KeyPair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ParseKeyPair parses KEY=VALUE, or global alone, which has no value. Errors wrap ErrKeyQuery.
func ParseKeyPair(text string) (KeyPair, error) {
	name, value, found := strings.Cut(text, "=")
	if !found && name != "global" || name == "" {
		return KeyPair{}, fmt.Errorf("%w: write KEY=VALUE, for example phone=+8613800138000; an id or a hash does not say of which key it is, so write its name, too (phone=id:..., phone=hash:...)", ErrKeyQuery)
	}
	return KeyPair{name, value}, nil
}

// A KeyQuery selects one key, by several pairs if the key is joined of several, and the limits in
// question: those with the given route and limit name, or all if these are empty.
type KeyQuery struct {
	Pairs []KeyPair `json:"pairs,omitempty"`
	Route string    `json:"route,omitempty"`
	Limit string    `json:"limit,omitempty"`
}

// A KeyAction is an operator's action on a key.
type KeyAction string

// The actions.
const (
	KeyReset    KeyAction = "reset"  // remove all counts and bans
	KeyGrant    KeyAction = "grant"  // give permits back, as many as are used at most
	KeyBan      KeyAction = "ban"    // refuse the key for a duration
	KeyUnban    KeyAction = "unban"  // end a ban; counts remain
	KeyAssign   KeyAction = "plan"   // assign a plan for a duration
	KeyUnassign KeyAction = "unplan" // end the assignment of a plan
)

// A KeyChange is an action on the key selected by its query.
type KeyChange struct {
	KeyQuery
	Action  KeyAction `json:"action"`
	Plan    string    `json:"plan,omitempty"`    // that is assigned
	For     Span      `json:"for,omitzero"`      // duration of a ban or an assignment
	Permits int64     `json:"permits,omitempty"` // permits of a grant
	Reason  string    `json:"reason,omitempty"`
}

// A Span is a duration in the notation of the configuration: "1h30m".
type Span time.Duration

// MarshalText returns the shortest notation of s.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a duration as in the configuration.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := limiter.ParseDuration(string(text))
	if err != nil || d > limiter.MaxWindow {
		return fmt.Errorf("%w: a duration is digits with a unit (ms, s, m, h, d, w), such as 1h or 1h30m, and at most 366d", ErrKeyQuery)
	}
	*s = Span(d)
	return nil
}

// String returns s as MarshalText does.
func (s Span) String() string { return limiter.FormatDuration(time.Duration(s)) }

// A KeyStanding is the state of one key under all limits that count by it.
type KeyStanding struct {
	At     time.Time       `json:"at"` // by the store's clock, like all other times
	Limits []LimitStanding `json:"limits"`
	// Networks are the bans of networks that contain the address, or are in the network, that was named.
	Networks []directive.Directive `json:"networks,omitempty"`
	// Denied are the lists of the configuration that refuse the key, and maintenance, each with its route.
	Denied []string `json:"denied,omitempty"`
	Notes  []string `json:"notes,omitempty"` // hints about the result
	// Chosen reports that only limits of one route or name were asked, so that others may refuse the key.
	Chosen bool `json:"chosen,omitempty"`
}

// A LimitStanding is the state of a key under one limit.
type LimitStanding struct {
	Route  string `json:"route"`
	Limit  string `json:"limit"`
	Key    string `json:"key"`    // the name of the key
	Masked string `json:"masked"` // phone=+86138****8000, or as it is if the key is not sensitive
	Logged string `json:"-"`      // as the log and the audit trail have it: masked in any case
	Hash   string `json:"hash"`   // the hash of the key in the log
	ID     string `json:"id"`     // the key id, see KeyPair.Value
	// Derived reports that the limit counts by a part of the named key, such as its country. It
	// counts other keys as well, and is changed only if the part itself is named.
	Derived   bool      `json:"derived,omitempty"`
	Plan      string    `json:"plan,omitempty"`      // the plan of the key, whose rates apply
	PlanUntil time.Time `json:"plan_until,omitzero"` // when it ends, if an operator has assigned it
	Mode      string    `json:"mode"`                // enforce or shadow
	Costs     bool      `json:"costs,omitempty"`     // a request may take more than one permit
	Algorithm string    `json:"algorithm"`
	Scope     string    `json:"scope"` // overall, or per_instance; the latter is counted by this node only
	// Java reports that the limiter is shared with Redisson.
	Java bool `json:"java,omitempty"`
	// Store is memory, redis, or local: this node's share while Redis is unreachable. It is empty
	// if no store can be read.
	Store       string           `json:"store,omitempty"`
	BannedUntil time.Time        `json:"banned_until,omitzero"`
	Windows     []WindowStanding `json:"windows"`
	Penalty     *PenaltyStanding `json:"penalty,omitempty"`
	// Unknown is why the limit could not be evaluated. There are no windows then.
	Unknown string `json:"unknown,omitempty"`
	Denies  bool   `json:"denies,omitempty"` // Unknown, and requests are refused meanwhile
	Exempt  bool   `json:"exempt,omitempty"` // Unknown, because the limit does not apply to the plan of the key
	// Unaffected reports, in the result of a change, that there was no ban to end, or nothing to reset.
	Unaffected bool `json:"unaffected,omitempty"`
}

// FullName returns the name of the limit in texts.
func (l LimitStanding) FullName() string { return LimitName(l.Route, l.Limit) }

// A WindowStanding is the state of a key under one rate of a limit.
type WindowStanding struct {
	Name string `json:"name"` // the name in the log: phone-1h
	Rate string `json:"rate"` // 5/1h
	// Most is the maximum number of permits; with a conversion, that with those which verified
	// subjects add. Used and Left are the permits in use and remaining,
	// regardless of bans. For a cooldown, Used is the step.
	Most int64 `json:"most"`
	Used int64 `json:"used"`
	Left int64 `json:"left"`
	// Next is when the next permit becomes available, and Full when all are. Both are zero if no
	// permit is used.
	Next time.Time `json:"next,omitzero"`
	Full time.Time `json:"full,omitzero"`
	// Conversion is why Most is what it is, of a limit with a conversion.
	Conversion *ConversionStanding `json:"conversion,omitempty"`
	// Amounts are these numbers of a budget or a cooldown, in their unit.
	Amounts *Amounts `json:"amounts,omitempty"`
	// Granted is the number of permits that a grant has given back: at most those that were used.
	Granted int64 `json:"granted,omitempty"`
	// Overflow reports that memory is full and the key shares a count with other keys. A change has
	// no effect on it.
	Overflow bool `json:"overflow,omitempty"`
	// Unreadable reports that the store has a value of another type for the key. A reset repairs
	// it.
	Unreadable bool `json:"unreadable,omitempty"`
}

// A ConversionStanding is why so many requests of a key may be open.
type ConversionStanding struct {
	Allowed   int64 `json:"allowed"`
	Confirmed int64 `json:"confirmed"` // subjects in the window
}

// String says it in words, nothing of a limit without a conversion.
func (c *ConversionStanding) String() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("allows %d: %d verified in the window", c.Allowed, c.Confirmed)
}

// A PenaltyStanding is the state of a key's penalty.
type PenaltyStanding struct {
	Refused int64 `json:"refused"` // recent refusals
	After   int64 `json:"after"`   // refusals that lead to a ban
	Ban     Span  `json:"ban"`
}

// An Amounts has numbers that are not plain ones: of a budget as money, 71.235 EUR, and of a cooldown the step that is
// used.
type Amounts struct {
	Most    string `json:"most,omitempty"`
	Used    string `json:"used"`
	Left    string `json:"left"`
	Granted string `json:"granted,omitempty"`
}

// Texts returns the numbers of w in their unit.
func (w WindowStanding) Texts() Amounts {
	if w.Amounts != nil {
		return *w.Amounts
	}
	text := func(n int64) string { return strconv.FormatInt(n, 10) }
	return Amounts{Most: text(w.Most), Used: text(w.Used), Left: text(w.Left), Granted: text(w.Granted)}
}

// A KeyResult is the result of a change. It does not contain the value of the key.
type KeyResult struct {
	KeyChange
	// Changed are the limits that were changed, and Skipped those that could not be.
	Changed []LimitStanding `json:"changed"` // their state after the change
	Skipped []SkippedLimit  `json:"skipped,omitempty"`
	Network *netip.Prefix   `json:"network,omitempty"` // that was banned or unbanned, in place of a key
	At      time.Time       `json:"at"`
	// Everywhere reports whether the change applies on all nodes. While Redis is unreachable, it
	// applies only on this node, as long as the node decides by itself. Later reports that it is
	// applied on all nodes when Redis is reachable again, if its time is not over and this node does not
	// end before.
	Everywhere bool `json:"everywhere"`
	Later      bool `json:"later,omitempty"`
	// Behind are the nodes that have not confirmed the change, although all nodes will follow.
	Behind []string `json:"behind,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Now is whether requests with the key are refused after the change, also by what it did not change.
	Now KeyVerdict `json:"now"`

	// Settled reports, if Later, whether what waited for the store waits no longer, and whether all of it was applied on
	// all nodes.
	Settled func() (settled, everywhere bool) `json:"-"`
}

// Where says on which nodes the change applies.
func (r KeyResult) Where() string {
	if len(r.Behind) > 0 {
		return "on all nodes but " + strings.Join(r.Behind, ", ") + ", not heard from: they follow once they are back"
	}
	here := r.Network != nil || r.Action == KeyAssign || r.Action == KeyUnassign ||
		slices.ContainsFunc(r.Changed, func(l LimitStanding) bool { return l.Store != "" })
	switch {
	case r.Everywhere:
		return "on all nodes"
	case r.Later && here:
		return "on this node now, on all nodes when redis is back"
	case r.Later:
		return "on all nodes when redis is back"
	}
	return "on this node only"
}

// Affected returns the limits under which there was something to change, and Unaffected the others.
func (r KeyResult) Affected() (all []LimitStanding) {
	return slices.DeleteFunc(slices.Clone(r.Changed), func(l LimitStanding) bool { return l.Unaffected })
}

// Unaffected returns the limits under which the key had no ban to end, or nothing to reset.
func (r KeyResult) Unaffected() (all []LimitStanding) {
	return slices.DeleteFunc(slices.Clone(r.Changed), func(l LimitStanding) bool { return !l.Unaffected })
}

// Granted returns the most permits that a grant has given back under one rate.
func (r KeyResult) Granted() (most int64) {
	for _, l := range r.Changed {
		for _, w := range l.Windows {
			most = max(most, w.Granted)
		}
	}
	return most
}

// A SkippedLimit is a limit that was not changed.
type SkippedLimit struct {
	Route string `json:"route"`
	Limit string `json:"limit"`
	Why   string `json:"why"`
}

// A KeyVerdict is whether requests with a key are refused now.
type KeyVerdict struct {
	Refused bool `json:"refused"`
	// Text is a sentence: "refused now by send.phone (banned) until 08:03:55 UTC (37m55s); by send.country 900/1h until 07:50:00 UTC (24m)".
	Text string `json:"text"`
}

// Remarks returns what else there is to say of l and of one of its windows, in one line.
func (l LimitStanding) Remarks(w WindowStanding) string {
	all := Holding(
		Fact{l.Mode == "shadow", "shadow: refuses nobody"},
		Fact{l.Plan != "" && l.PlanUntil.IsZero(), "plan " + l.Plan},
		Fact{!l.PlanUntil.IsZero(), "plan " + l.Plan + ", assigned until " + l.PlanUntil.UTC().Format(time.RFC3339)},
		Fact{l.Derived, "counts for others too"},
		Fact{l.Java, "shared with Java"},
		Fact{l.Store == "local", "this node's share"},
		Fact{l.Scope == "per_instance", "this node's count"},
		Fact{w.Overflow, "memory is full: shares a count with other keys"},
		Fact{w.Unreadable, "the store holds something else here; reset heals it"},
		Fact{true, w.Conversion.String()},
		Fact{w.Granted > 0, "granted " + w.Texts().Granted},
	)
	if p := l.Penalty; p != nil {
		all = append(all, fmt.Sprintf("refused %d of %d before a ban of %s", p.Refused, p.After, p.Ban))
	}
	return strings.Join(all, "; ")
}
