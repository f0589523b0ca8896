package proxy

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/key"
)

// errDenied reports that a list refuses the key of a request.
var errDenied = errors.New("denied by a list")

// A bannedError reports that an operator has banned the network of a client. Its text is made only for whoever reads it:
// those who are banned may send much.
type bannedError struct {
	network netip.Prefix
	redact  *redactor
}

func (b bannedError) Error() string {
	return errDenied.Error() + ": an operator has banned the network " + cmp.Or(b.redact.shownAddress(b.network.String()), "of the client")
}

func (b bannedError) Unwrap() error { return errDenied }

// bannedNetworks is the name of the list of networks that operators have banned, which no configured list can have, and
// underMaintenance the error of a request whose route is under maintenance.
const bannedNetworks, underMaintenance = "banned networks", "under maintenance"

// ByOperator reports whether a request was refused by an operator, if the log has this list and this error of it.
func ByOperator(list, err string) bool { return list == bannedNetworks || err == underMaintenance }

// A maintenanceError reports that the route of a request is under maintenance.
type maintenanceError struct{ ends time.Time }

func (m maintenanceError) Error() string { return underMaintenance }

// retryAfter returns when a client should try again: when the maintenance ends, if that is soon.
func (m maintenanceError) retryAfter() time.Duration {
	const soon, unknown = 24 * time.Hour, 5 * time.Minute
	if rest := time.Until(m.ends); rest <= soon {
		return rest
	}
	return unknown
}

// SetDirectives makes the directives of operators hold from now on; nil if there are none. Requests that have
// passed their stage are not affected.
func (p *Proxy) SetDirectives(s *directive.Set) { p.directives.Store(s) }

// checkDirectives refuses a request if its route is under maintenance, or an operator has banned the network of
// its client. Plans of keys are for later stages. It costs the load of a pointer while there are no directives.
func (p *Proxy) checkDirectives(x *exchange) error {
	s := p.directives.Load()
	if s == nil {
		return nil
	}
	now := time.Now()
	if d, on := s.Maintenance(x.route.Name, now); on {
		return maintenanceError{d.Until}
	}
	if d, banned := s.Ban(x.client.addr, x.route.Name, now); banned {
		x.list = &config.List{Name: bannedNetworks, Action: config.DenyListed}
		return bannedError{d.Network, &x.generation.redact}
	}
	if s.HasPlans() {
		x.extracted.assigned = s
	}
	return nil
}

// A listLookup is the lists of a route that use the same key.
type listLookup struct {
	key   *key.Spec
	lists []*config.List // those that refuse first
}

// newListLookups groups lists by key, so that each key is read once.
func newListLookups(lists []*config.List) []listLookup {
	var all []listLookup
	for _, l := range lists {
		i := slices.IndexFunc(all, func(s listLookup) bool { return s.key == l.Key })
		if i < 0 {
			i, all = len(all), append(all, listLookup{key: l.Key})
		}
		all[i].lists = append(all[i].lists, l)
	}
	for _, s := range all {
		slices.SortStableFunc(s.lists, func(a, b *config.List) int {
			return cmp.Compare(actionOrder(a.Action), actionOrder(b.Action))
		})
	}
	return all
}

func actionOrder(a config.Action) int {
	if a.Refuses() {
		return 0
	}
	return 1
}

// checkLists looks the request up in lists of its route. It returns errDenied if a deny list
// has it, or an only list does not. Otherwise, if a bypass list has it, no limit applies. A request
// without the key of a list is handled as the key is configured: it is refused, or it is not on the
// list. A preflight has no key that clients choose, and passes such lists. The cost does not depend on the
// length of the lists.
func (g *generation) checkLists(x *exchange, lookups []listLookup) error {
	if err := x.readQuery(); err != nil {
		return err
	}
	for _, s := range lookups {
		if slices.Contains(x.extracted.unlisted, s.key) {
			continue
		}
		_, err := g.key(x, s.key)
		if errors.Is(err, key.ErrMissing) && x.preflight() {
			continue
		}
		if err != nil {
			return err
		}
		for _, l := range s.lists {
			isOnly := l.Action == config.OnlyListed
			if x.isListed(l) == isOnly || isOnly && x.preflight() && l.Key.ClientChosen() {
				continue
			}
			if l.Action.Refuses() {
				x.list = l
				return errDenied
			}
			x.list = cmp.Or(x.list, l)
		}
	}
	return nil
}

// isListed reports whether the last key that was read is on l. An address on a list that lets requests pass
// matches only that address. On a deny list it matches the network by which limits count, because a client
// can use all addresses of its network.
func (x *exchange) isListed(l *config.List) bool {
	if l.Action != config.DenyListed {
		return l.Members.HasExactly(&x.extracted.value, x.client.addr)
	}
	return l.Members.Has(&x.extracted.value)
}

// bypasses reports whether no limit applies to the request.
func (x *exchange) bypasses() bool {
	return x.list != nil && x.list.Action == config.Bypass || x.preflight() || x.extracted.logged.line.hasNone()
}

// preflight reports whether the request is a CORS preflight of a browser, to which no limit
// applies. A preflight has no body, no cookie, no authorization and no field that browsers do not
// send with it, so that an upstream cannot take it for another request. It has no key of its route
// either, nor a parameter with the name of one: some upstreams ignore the method, and would process
// such a key, or one that they find there instead, without its being counted.
func (x *exchange) preflight() bool {
	return x.request.Method == http.MethodOptions && x.in.length == 0 && !x.route.CountPreflight && x.hasOnlyPreflightFields()
}

func (x *exchange) hasOnlyPreflightFields() bool {
	if len(x.in.header.Values("Origin")) != 1 || len(x.in.header.Values("Access-Control-Request-Method")) != 1 {
		return false
	}
	isOther := func(name string) bool { return !x.client.trustedPeer || !isProxyField(name) }
	return !slices.ContainsFunc(x.in.notPreflight, isOther) &&
		x.readQuery() == nil && !slices.ContainsFunc(x.route.clientKeys, x.hasValueAt) && !x.namesKey()
}

// namesKey reports whether a parameter of the query has the name of a key of the route. So does a
// query that servers read differently.
func (x *exchange) namesKey() bool {
	query, err := x.ParsedQuery()
	for name := range query {
		if x.route.keyNames.Includes(name) {
			return true
		}
	}
	return err != nil
}

// parameterNames returns the names by which a server may look in the query for what Weir reads under
// this name elsewhere: X-Phone, x_phone and phone for a field X-Phone, phone and user[phone] for
// /user/phone in JSON.
func parameterNames(name string) []string {
	nested := strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", "[")
	name = name[strings.LastIndexByte(name, '/')+1:]
	folded := strings.TrimPrefix(key.FoldHeader(name), "X_")
	return []string{name, nested, folded, "X_" + folded}
}

// hasValueAt reports whether a request without a body has a value at o, or at a place that some
// servers take for o.
func (x *exchange) hasValueAt(o key.Origin) bool {
	if slices.ContainsFunc(x.extracted.confusable, func(other key.Origin) bool { return other.Name == o.Name }) {
		return true
	}
	if other, ok := o.Confused(); ok { // some servers take what is in a body from the query too
		return len(x.Query(other.Name)) > 0
	}
	return o.Source.IsField() && len(x.Header(o.Name)) > 0 || o.Source == key.Path && x.Param(o.Name) != ""
}

// isPreflightField reports whether browsers send a field with a preflight (Fetch section 4.8), or networks add it.
func isPreflightField(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Content-Length", "Dnt", "Host",
		"Keep-Alive", "Origin", "Pragma", "Priority", "Referer", "Sec-Gpc", "Te", "User-Agent":
		return true
	}
	return strings.HasPrefix(name, "Access-Control-Request-") || strings.HasPrefix(name, "Sec-Fetch-")
}

// isProxyField reports whether proxies and similar intermediaries add a field with this name.
func isProxyField(name string) bool {
	switch name {
	case "Forwarded", "Via", "X-Real-Ip", "X-Request-Id", "X-Correlation-Id", "True-Client-Ip", "Traceparent", "Tracestate", "X-Cloud-Trace-Context", "X-Varnish":
		return true
	}
	prefixes := []string{"X-Forwarded-", "X-Envoy-", "X-B3-", "X-Amz", "X-Azure-", "Cf-", "Cdn-", "Fastly-"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
