package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/view"
)

// maxPairs is the number of parts of a joined key in the form.
const maxPairs = 3

// A keysView is the data of the page of a key: the form, and the state of the key.
type keysView struct {
	Names  []string // names of the keys by which limits count
	Routes []string
	Limits []string
	keyFlash
	// State is nil before a key is looked up.
	State      *admin.KeyState
	Reasons    []string // suggestions
	Plans      []string // that can be assigned to the key
	Look       string   // id of the flash
	Directives directivesView
}

// A keyFlash is what a form of the page of a key has led to. All but the query is shown once.
type keyFlash struct {
	Query  view.KeyQuery
	Fault  fault
	Status int // with a fault
	Result *view.KeyResult
	Verb   string     // past tense of the action
	Ask    *keyChange // to be confirmed
}

// A keyChange is a change of a key that has the given version.
type keyChange struct {
	view.KeyChange
	Version string
}

// Pairs returns the pairs of the query, and empty ones to fill in.
func (v keysView) Pairs() []view.KeyPair {
	return append(slices.Clip(v.Query.Pairs), make([]view.KeyPair, maxPairs-len(v.Query.Pairs))...)
}

// More reports whether the less common fields of the form are expanded.
func (v keysView) More() bool {
	return len(v.Query.Pairs) > 1 || v.Query.Route != "" || v.Query.Limit != ""
}

// Offers reports whether an action on the key is possible.
func (v keysView) Offers(a string) bool {
	switch view.KeyAction(a) {
	case view.KeyUnban:
		return slices.ContainsFunc(v.State.Limits, func(l view.LimitStanding) bool { return !l.BannedUntil.IsZero() })
	case view.KeyAssign:
		return len(v.Plans) > 0
	case view.KeyUnassign:
		return slices.ContainsFunc(v.own(), func(l view.LimitStanding) bool { return !l.PlanUntil.IsZero() })
	}
	return true
}

// own returns the limits that count by the key itself, and not by a part of it.
func (v keysView) own() []view.LimitStanding {
	return slices.DeleteFunc(slices.Clone(v.State.Limits), func(l view.LimitStanding) bool { return l.Derived })
}

// Own returns what names the key itself: the first limit that counts by it, or one without a hash.
func (v keysView) Own() view.LimitStanding {
	return append(v.own(), view.LimitStanding{Masked: "the key"})[0]
}

// Changeable returns the names of the limits that a change applies to.
func (v keysView) Changeable() []string { return view.Each(v.own(), view.LimitStanding.FullName) }

// showKeys shows the form, and the key that was looked up, if its flash is named.
func (d *dashboard) showKeys(r *http.Request) page {
	v := keysView{Look: r.URL.Query().Get("look")}
	if v.Look == "" {
		return d.keys(r, v)
	}
	kept, first, found := flashOf[keyFlash](d, r, "look")
	switch {
	case !found:
		v.Fault, v.Status = "what was looked up here is not kept any more; enter the key again", http.StatusGone
		return d.keys(r, v)
	case first:
		v.keyFlash = kept
	default:
		v.Query = kept.Query
	}
	s, err := d.Inspect(r.Context(), v.Query)
	switch {
	case err == nil:
		v.State, v.Reasons = &s, d.reasons(r)
	case v.Fault == "" && v.Result == nil:
		v.Fault = faultOf("the key cannot be looked up", err)
	case v.Fault == "":
		v.Fault = faultOf("done, but the key cannot be looked up", err)
	}
	return d.keys(r, v)
}

// toKey redirects to the page of a key.
func (d *dashboard) toKey(r *http.Request, f keyFlash) page {
	return page{redirect: "/dashboard/keys?look=" + d.keep(r, f)}
}

// keys returns the page of keys, with the choices from the configuration.
func (d *dashboard) keys(r *http.Request, v keysView) page {
	limits, err := d.Limits(r.Context())
	if err != nil && v.Fault == "" {
		v.Fault = faultOf("limits cannot be read", err)
	}
	for _, l := range limits.Limits {
		if len(l.Parts) == 0 {
			l.Parts = []string{l.Key}
		}
		v.Names = append(v.Names, l.Parts...)
		if v.State != nil && slices.ContainsFunc(v.own(), func(s view.LimitStanding) bool { return s.Route == l.Route && s.Limit == l.Name }) {
			v.Plans = append(v.Plans, l.Plans...)
		}
	}
	v.Routes, v.Limits = namesOf(limits)
	for _, all := range []*[]string{&v.Names, &v.Plans} {
		slices.Sort(*all)
		*all = slices.Compact(*all)
	}
	v.Directives = d.directives(r, kindBan)
	status := v.Directives.Sent.Status
	if v.Fault != "" {
		status = cmp.Or(v.Status, http.StatusUnprocessableEntity)
	}
	return page{name: "keys", title: "Keys", status: status, data: v}
}

// queryOf returns the key named in a form. Parts without a name are ignored; a part may also be
// written as NAME=VALUE in the field of its value.
func queryOf(r *http.Request) view.KeyQuery {
	q := view.KeyQuery{Route: r.PostForm.Get("route"), Limit: r.PostForm.Get("limit")}
	names, values := r.PostForm["key"], r.PostForm["value"]
	for i := range min(len(names), len(values), maxPairs) {
		name, value := strings.TrimSpace(names[i]), strings.TrimSpace(values[i])
		if name == "" {
			name, value, _ = strings.Cut(value, "=")
		}
		if name != "" {
			q.Pairs = append(q.Pairs, view.KeyPair{Key: name, Value: value})
		}
	}
	return q
}

// changeKey executes the action of a button, which for bans and resets must be confirmed first.
func (d *dashboard) changeKey(r *http.Request) page {
	if !sessionOf(r).Write() {
		return denied("change what is counted of a key")
	}
	f := keyFlash{Query: queryOf(r)}
	c, err := changeOf(r, f.Query)
	switch {
	case err != nil:
	case asks(c.Action) && r.PostForm.Get("sure") == "":
		f.Ask = &c
		return d.toKey(r, f)
	default:
		var result view.KeyResult
		if result, err = d.ChangeSince(r.Context(), c.Version, c.KeyChange); err == nil {
			f.Result, f.Verb = &result, pastTense(c.KeyChange, result)
		}
	}
	f.Status, f.Fault = statusOf(err), faultOf("nothing was changed", err)
	return d.toKey(r, f)
}

// asks reports whether an action must be confirmed: what it takes away does not come back.
func asks(a view.KeyAction) bool { return a == view.KeyBan || a == view.KeyReset }

// maxReasons is how many reasons are suggested.
const maxReasons = 10

// reasons returns the reasons that operators gave last, and some to begin with.
func (d *dashboard) reasons(r *http.Request) (all []string) {
	trail, _ := d.Audit(r.Context(), view.AuditQuery{N: auditShown}) // without it there are fewer suggestions
	for _, e := range trail.Entries {
		if e.Reason != "" && !slices.Contains(all, e.Reason) && len(all) < maxReasons {
			all = append(all, e.Reason)
		}
	}
	return view.AddNew(all, "asked by the customer", "abuse", "test")
}

// changeOf returns the change that a form describes.
func changeOf(r *http.Request, q view.KeyQuery) (keyChange, error) {
	text := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	c := keyChange{view.KeyChange{KeyQuery: q, Action: view.KeyAction(text("action")), Reason: text("reason")}, text("version")}
	switch c.Action {
	case view.KeyBan, view.KeyAssign:
		if c.Plan = text("plan"); c.Plan == "" && c.Action == view.KeyAssign {
			return c, errors.New("no plan is chosen; choose one")
		}
		if c.For.UnmarshalText([]byte(text("for"))) != nil {
			return c, errLasts
		}
	case view.KeyGrant:
		n, err := strconv.ParseInt(text("permits"), 10, 64)
		if err != nil {
			return c, errors.New("the number of permits must be a whole number; write for example 5")
		}
		c.Permits = n
	}
	if c.Reason == "" {
		return c, errReason
	}
	return c, nil
}

// An action is an action on a key, with its button.
type action struct{ Name, Title, Help string }

// Asks reports whether the action must be confirmed.
func (a action) Asks() bool { return asks(view.KeyAction(a.Name)) }

func actions() []action {
	return []action{
		{string(view.KeyReset), "Reset", "Forget what is counted, and end bans."},
		{string(view.KeyGrant), "Grant", "Give permits on top; never more than a limit has."},
		{string(view.KeyUnban), "Unban", "End a ban; what is counted stays."},
		{string(view.KeyAssign), "Assign a plan", "The rates of a plan for some time; what is used stays used."},
		{string(view.KeyUnassign), "End the plan", "Back to the plan that its requests have; what is used stays used."},
		{string(view.KeyBan), "Ban", "Refuse all its requests for some time."},
	}
}

// pastTense describes a completed action. A grant gives back no more than was used.
func pastTense(c view.KeyChange, r view.KeyResult) string {
	return map[view.KeyAction]string{
		view.KeyReset:    "Reset: what was counted is forgotten, and bans have ended",
		view.KeyGrant:    "Granted " + view.Plural(view.Count(cmp.Or(r.Granted(), c.Permits)), "permit"),
		view.KeyUnban:    "Unbanned: what was counted stays",
		view.KeyAssign:   "Assigned the plan " + c.Plan + " for " + c.For.String(),
		view.KeyUnassign: "Ended the assignment of a plan",
		view.KeyBan:      "Banned for " + c.For.String(),
	}[c.Action]
}

// A known is a value that was asked for, or the last known one if it could not be had. Unknown is not
// zero: templates show – for it.
type known[T any] struct {
	Value T
	// At is when the value was had; zero if it never was.
	At time.Time
	// Fault is why it could not be had now; empty if it was.
	Fault fault
}

// Any reports whether there is a value.
func (k known[T]) Any() bool { return !k.At.IsZero() }

// Old reports that the value could not be had now.
func (k known[T]) Old() bool { return k.Fault != "" }

// A remembered keeps the last known value of something that is asked for again and again.
type remembered[T any] struct {
	mu   sync.Mutex // guards what follows
	last known[T]
}

// update returns the value, or the last known one if that could not be had.
func (r *remembered[T]) update(value T, unread fault, now time.Time) known[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if unread == "" {
		r.last = known[T]{Value: value, At: now}
	}
	shown := r.last
	shown.Fault = unread
	return shown
}

// memories are the last known numbers of all nodes, which this node cannot know while the shared store
// is unreachable.
type memories struct {
	overview [4]remembered[totals] // by index into spans
	series   [4]remembered[series]
	minutes  remembered[view.Statistics]
	nodes    remembered[admin.Nodes]
	leader   remembered[view.Leadership]
}
