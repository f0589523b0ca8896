package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
)

// maxDirectives is how many directives a page lists, and maxNamed how many the banner names.
const (
	maxDirectives = 50
	maxNamed      = 3
)

// kindBan is the kind of directives that are bans; all others are about maintenance.
const kindBan = "ban"

// A directivesView is a table of directives of one kind, with the form for them.
type directivesView struct {
	Kind   string
	All    []directive.Directive
	On     []directive.Directive // those that are listed
	Routes []string
	Fault  fault
	Sent   directiveFlash
}

// Bans reports whether the directives are bans.
func (v directivesView) Bans() bool { return v.Kind == kindBan }

// A directiveFlash is what the form has led to. It is shown once.
type directiveFlash struct {
	Change directiveChange
	Asks   bool // the change must be confirmed
	Fault  fault
	Status int // with a fault
	Done   string
	Good   bool // what is done holds on all nodes
}

// A directiveChange begins or ends a directive. The time of one that is ended is when it was given.
type directiveChange struct {
	directive.Directive
	Kind  string
	Typed string // the network
	For   string
	Ends  bool
}

// page returns the path of the page that has the form.
func (c directiveChange) page() string {
	if c.Kind == kindBan {
		return "/dashboard/keys"
	}
	return "/dashboard/routes"
}

// Where names the routes of the change.
func (c directiveChange) Where() string { return routeText(c.Route) }

func routeText(route string) string {
	if route == "" {
		return "all routes"
	}
	return "route " + route
}

// untilText says when a directive ends.
func untilText(d directive.Directive) string {
	if d.Open() {
		return "until it is ended"
	}
	return "until " + stamp(d.Until)
}

// maintenanceText says what is under maintenance; empty if nothing is.
func maintenanceText(on []directive.Directive) string {
	var all []string
	for i, d := range on {
		if i == maxNamed {
			all = append(all, view.Plural(view.Count(int64(len(on)-i)), "more route"))
			break
		}
		text := routeText(d.Route)
		if d.Who != "" {
			text += ", by " + d.Who
		}
		all = append(all, text+", "+untilText(d))
	}
	return strings.Join(all, "; ")
}

// directives returns the directives of a kind, and what the form has led to.
func (d *dashboard) directives(r *http.Request, kind string) directivesView {
	v := directivesView{Kind: kind}
	sent, first, _ := flashOf[directiveFlash](d, r, "done")
	if first && sent.Change.Kind == kind {
		v.Sent = sent
	}
	on, err := d.held(r.Context(), kind)
	routes, unread := d.Routes(r.Context())
	v.Fault = faultOf("directives cannot be listed", errors.Join(err, unread))
	v.All, v.On, v.Routes = on, on[:min(len(on), maxDirectives)], routes.Names()
	return v
}

// held returns the directives of a kind that hold.
func (d *dashboard) held(ctx context.Context, kind string) ([]directive.Directive, error) {
	if kind == kindBan {
		b, err := d.Bans(ctx)
		return b.Networks, err
	}
	m, err := d.Maintenance(ctx)
	return m.On, err
}

// changeDirective does what the form says. What is begun must be confirmed first.
func (d *dashboard) changeDirective(r *http.Request) page {
	if !sessionOf(r).Write() {
		return denied("ban networks, or begin or end maintenance")
	}
	c, err := directiveOf(r)
	f := directiveFlash{Change: c}
	switch {
	case err != nil:
	case c.Ends:
		f.Done, f.Good, err = d.endDirective(r.Context(), c)
	case r.PostForm.Get("sure") == "":
		f.Asks = true
	default:
		f.Done, f.Good, err = d.carryOut(r.Context(), c)
	}
	f.Status, f.Fault = statusOf(err), faultOf("nothing was changed", err)
	return page{redirect: c.page() + "?done=" + d.keep(r, f) + "#h-directives"}
}

var (
	errReason = errors.New("a reason is missing; write one, for the audit trail")
	errLasts  = errors.New("a duration needs a unit; write for example 1h")
)

// directiveOf returns the change that a form describes.
func directiveOf(r *http.Request) (c directiveChange, err error) {
	text := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	c = directiveChange{Kind: text("kind"), Typed: text("network"), For: text("for"), Ends: text("do") == "end"}
	c.Route, c.Reason = text("route"), text("reason")
	if c.Kind == kindBan {
		network, err := netip.ParsePrefix(c.Typed)
		if err != nil {
			return c, errors.New("not a network; write one such as 203.0.113.0/24 or 2001:db8::/48; an address is looked up, and banned, as a key")
		}
		c.Network = network.Masked()
	}
	if c.Ends {
		c.At, _ = time.Parse(time.RFC3339Nano, text("at"))
	} else if _, err := c.span(); err != nil {
		return c, err
	}
	if c.Reason == "" {
		return c, errReason
	}
	return c, nil
}

// span returns how long the directive is to hold. Maintenance without a time holds until it is ended.
func (c directiveChange) span() (s view.Span, err error) {
	if c.For == "" && c.Kind != kindBan {
		return 0, nil
	}
	if s.UnmarshalText([]byte(c.For)) != nil || s <= 0 {
		return 0, errLasts
	}
	return s, nil
}

// endDirective ends a directive, unless another one of its name has been given since the page was shown.
// That somebody else has ended it is no error.
func (d *dashboard) endDirective(ctx context.Context, c directiveChange) (done string, everywhere bool, err error) {
	const ended = "Nothing to do: it has ended already"
	now, err := d.find(ctx, c)
	switch {
	case err != nil:
		return "", false, err
	case now == nil:
		return ended, true, nil
	case !now.At.Equal(c.At):
		return "", false, &admin.Problem{Status: http.StatusConflict, Detail: cmp.Or(now.Who, "somebody") + " set it again at " + stamp(now.At) + ", after this page was shown"}
	}
	done, everywhere, err = d.carryOut(ctx, c)
	if err == nil {
		return done, everywhere, nil
	}
	if now, unread := d.find(ctx, c); unread == nil && now == nil {
		return ended, true, nil
	}
	return "", false, err
}

// find returns the directive of the name of o; nil if none holds.
func (d *dashboard) find(ctx context.Context, c directiveChange) (*directive.Directive, error) {
	on, err := d.held(ctx, c.Kind)
	if i := slices.IndexFunc(on, func(one directive.Directive) bool { return one.Name() == c.Name() }); i >= 0 {
		return &on[i], err
	}
	return nil, err
}

// carryOut carries a change out, and says what was done.
func (d *dashboard) carryOut(ctx context.Context, c directiveChange) (done string, everywhere bool, err error) {
	lasts, _ := c.span() // it was parsed before
	if c.Kind != kindBan {
		m, err := d.SetMaintenance(ctx, admin.MaintenanceChange{On: !c.Ends, Route: c.Route, For: lasts, Reason: c.Reason})
		done = "Maintenance has begun: "
		if c.Ends {
			done = "Maintenance has ended: "
		}
		return done + c.Where() + ", " + m.Where(), m.Everywhere, err
	}
	k := view.KeyChange{KeyQuery: view.KeyQuery{Pairs: []view.KeyPair{{Key: "client_ip", Value: c.Network.String()}}, Route: c.Route}, Action: view.KeyBan, For: lasts, Reason: c.Reason}
	done = "Banned for " + c.For + ": "
	if c.Ends {
		k.Action, k.For, done = view.KeyUnban, 0, "Unbanned: "
	}
	result, err := d.Change(ctx, k)
	done += c.Network.String() + " on " + c.Where() + ", " + result.Where()
	if result.Network == nil {
		done += "; limits count it as one client, so it is banned as a key: look it up to see it"
	}
	if c.Ends && result.Now.Refused {
		done += "; " + result.Now.Text
	}
	return done, result.Everywhere, err
}
