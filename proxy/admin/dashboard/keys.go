package dashboard

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-proxy/weir/proxy"
)

// maxPairs is the number of parts of a joined key in the form.
const maxPairs = 3

// A keysView is the data of the page of a key: the form, and the state of the key.
type keysView struct {
	Names  []string // names of the keys by which limits count
	Routes []string
	Limits []string
	Query  proxy.KeyQuery
	Fault  fault
	// Standing is nil before a key is looked up.
	Standing *proxy.KeyStanding
	Result   *proxy.KeyResult
	Verb     string // past tense of the action
}

// Pairs returns the pairs of the query, and empty ones to fill in.
func (v keysView) Pairs() []proxy.KeyPair {
	pairs := slices.Clone(v.Query.Pairs)
	for len(pairs) < maxPairs {
		pairs = append(pairs, proxy.KeyPair{})
	}
	return pairs
}

// More reports whether the less common fields of the form are expanded.
func (v keysView) More() bool {
	return len(v.Query.Pairs) > 1 || v.Query.Route != "" || v.Query.Limit != ""
}

func (d *dashboard) showKeyForm(r *http.Request) view {
	return d.keys(r, keysView{})
}

// keys returns the page of keys, with the choices from the configuration.
func (d *dashboard) keys(r *http.Request, v keysView) view {
	limits, err := d.Limits(r.Context())
	if err != nil && v.Fault == "" {
		v.Fault = faultOf("limits cannot be read", err)
	}
	for _, l := range limits.Limits {
		names := l.Parts
		if len(names) == 0 {
			names = []string{l.Key}
		}
		v.Names = append(v.Names, names...)
		v.Routes = append(v.Routes, l.Route)
		v.Limits = append(v.Limits, l.Name)
	}
	for _, all := range []*[]string{&v.Names, &v.Routes, &v.Limits} {
		slices.Sort(*all)
		*all = slices.Compact(*all)
	}
	status := 0
	if v.Fault != "" {
		status = http.StatusUnprocessableEntity
	}
	return view{name: "keys", title: "Keys", status: status, data: v}
}

// queryOf returns the key named in a form. Parts without a name are ignored; a part may also be
// written as NAME=VALUE in the field of its value.
func queryOf(r *http.Request) proxy.KeyQuery {
	q := proxy.KeyQuery{Route: r.PostForm.Get("route"), Limit: r.PostForm.Get("limit")}
	names, values := r.PostForm["key"], r.PostForm["value"]
	for i := range min(len(names), len(values), maxPairs) {
		name, value := strings.TrimSpace(names[i]), strings.TrimSpace(values[i])
		if name == "" {
			name, value, _ = strings.Cut(value, "=")
		}
		if name != "" {
			q.Pairs = append(q.Pairs, proxy.KeyPair{Key: name, Value: value})
		}
	}
	return q
}

func (d *dashboard) lookUp(r *http.Request) view {
	v := keysView{Query: queryOf(r)}
	s, err := d.Standing(r.Context(), v.Query)
	if err != nil {
		v.Fault = faultOf("the key cannot be looked up", err)
	} else {
		v.Standing = &s
	}
	return d.keys(r, v)
}

// changeKey executes the action of a button, and shows the new state of the key.
func (d *dashboard) changeKey(r *http.Request) view {
	if !sessionOf(r).Write() {
		return denied("change what is counted of a key")
	}
	v := keysView{Query: queryOf(r)}
	c, err := changeOf(r, v.Query)
	if err == nil {
		var result proxy.KeyResult
		if result, err = d.Change(r.Context(), c); err == nil {
			v.Result, v.Verb = &result, pastTense(c)
		}
	}
	if err != nil {
		v.Fault = faultOf("nothing was changed", err)
	}
	s, err := d.Standing(r.Context(), v.Query)
	switch {
	case err == nil:
		v.Standing = &s
	case v.Fault == "":
		v.Fault = faultOf("done, but the key cannot be looked up", err)
	}
	return d.keys(r, v)
}

var (
	errSpan    = errors.New("the duration of a ban needs a unit; write for example 1h")
	errPermits = errors.New("the number of permits must be a whole number; write for example 5")
)

// changeOf returns the change that a form describes.
func changeOf(r *http.Request, q proxy.KeyQuery) (proxy.KeyChange, error) {
	c := proxy.KeyChange{KeyQuery: q, Action: proxy.KeyAction(r.PostForm.Get("action")), Reason: strings.TrimSpace(r.PostForm.Get("reason"))}
	switch c.Action {
	case proxy.KeyBan:
		if c.For.UnmarshalText([]byte(strings.TrimSpace(r.PostForm.Get("for")))) != nil {
			return c, errSpan
		}
	case proxy.KeyGrant:
		n, err := strconv.ParseInt(strings.TrimSpace(r.PostForm.Get("permits")), 10, 64)
		if err != nil {
			return c, errPermits
		}
		c.Permits = n
	}
	return c, nil
}

// An action is an action on a key, with its button.
type action struct{ Name, Title, Help string }

func actions() []action {
	return []action{
		{string(proxy.KeyReset), "Reset", "Forget what is counted, and end bans."},
		{string(proxy.KeyGrant), "Grant", "Give permits on top; never more than a limit has."},
		{string(proxy.KeyUnban), "Unban", "End a ban; what is counted stays."},
		{string(proxy.KeyBan), "Ban", "Refuse all its requests for some time."},
	}
}

// pastTense describes a completed action.
func pastTense(c proxy.KeyChange) string {
	switch c.Action {
	case proxy.KeyReset:
		return "Reset: what was counted is forgotten, and bans have ended"
	case proxy.KeyGrant:
		return "Granted " + formatCount(c.Permits) + " permits"
	case proxy.KeyBan:
		return "Banned for " + c.For.String()
	}
	return "Unbanned: what was counted stays"
}
