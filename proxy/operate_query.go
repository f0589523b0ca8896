package proxy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
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

// ParseKeyPair parses KEY=VALUE. Errors wrap ErrKeyQuery.
func ParseKeyPair(text string) (KeyPair, error) {
	name, value, found := strings.Cut(text, "=")
	if !found || name == "" {
		return KeyPair{}, fmt.Errorf("%w: write KEY=VALUE, for example phone=+8613800138000", ErrKeyQuery)
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
	KeyReset KeyAction = "reset" // remove all counts and bans
	KeyGrant KeyAction = "grant" // add permits, up to the maximum of the limit
	KeyBan   KeyAction = "ban"   // refuse the key for a duration
	KeyUnban KeyAction = "unban" // end a ban; counts remain
)

// A KeyChange is an action on the key selected by its query.
type KeyChange struct {
	KeyQuery
	Action  KeyAction `json:"action"`
	For     Span      `json:"for,omitzero"`      // duration of a ban
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
	if err != nil {
		return fmt.Errorf("%w: a duration needs a unit; write for example 1h", ErrKeyQuery)
	}
	*s = Span(d)
	return nil
}

// String returns s as MarshalText does.
func (s Span) String() string { return limiter.FormatDuration(time.Duration(s)) }

// change returns the change for the stores, or an error if c is not valid.
func (c KeyChange) change() (limiter.Change, error) {
	switch c.Action {
	case KeyReset:
		return limiter.Change{Action: limiter.ActionReset}, nil
	case KeyUnban:
		return limiter.Change{Action: limiter.ActionBan}, nil
	case KeyBan:
		d := time.Duration(c.For)
		if d <= 0 || limiter.CheckBan(d) != nil {
			return limiter.Change{}, fmt.Errorf("%w: a ban lasts from 1ms to 366d; write for example 1h", ErrKeyQuery)
		}
		return limiter.Change{Action: limiter.ActionBan, Ban: d}, nil
	case KeyGrant:
		if c.Permits < 1 || c.Permits > limiter.MaxCount {
			return limiter.Change{}, fmt.Errorf("%w: number of permits to grant; write a whole number from 1 to %d", ErrKeyQuery, int64(limiter.MaxCount))
		}
		return limiter.Change{Action: limiter.ActionGrant, Grant: c.Permits}, nil
	}
	return limiter.Change{}, fmt.Errorf("%w: %q; write reset, grant, ban or unban", ErrKeyQuery, string(c.Action))
}

// given returns the pairs by name. A KeyID must be the only pair.
func (q KeyQuery) given(prefix int) (key.Input, error) {
	g := key.Input{Texts: map[string]string{}, IPv6Prefix: prefix}
	if len(q.Pairs) == 0 {
		return g, fmt.Errorf("%w: no key is named; write KEY=VALUE, for example phone=+8613800138000", ErrKeyQuery)
	}
	for _, p := range q.Pairs {
		name := key.CanonicalName(p.Key)
		if _, twice := g.Texts[name]; twice {
			return g, fmt.Errorf("%w: %s is given twice; name each part of a key once", ErrKeyQuery, name)
		}
		g.Texts[name] = p.Value
	}
	return g, nil
}
