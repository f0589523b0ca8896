package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// A role is the meaning of a field in a log.
type role uint8

const (
	roleEnd   role = iota // when the response was sent, or the line written
	roleStart             // when the request arrived
	roleMethod
	roleTarget  // path and query
	rolePath    // the path alone
	roleQuery   // the query alone
	roleRequest // the request line: GET /a HTTP/1.1
	roleHost
	roleScheme
	roleProto
	roleClient
	roleStatus
	roleDuration
	roleBody
	roleOwn      // identifies Weir's own log
	roleLimit    // the limit that refused the request, in Weir's own log
	roleList     // the list that decided
	roleKeys     // what identifies the keys
	roleRoute    // the route that matched
	roleListener // what the request came by
	roleSample   // one request of so many is logged
	roleCached   // the limits whose refusal was repeated
	roleDecided  // when the limits decided
	roleRepeat   // the request repeats one that was counted
	roleUpstream // the upstream that answered
	roleRefunded // permits of the request were refunded
	roleError    // why the request failed
	roleMessage  // distinguishes requests from other messages in Weir's own log
	roleField    // a field from which a key is read
	roleCount
)

// A meaning is one of the roles, with the names of its fields.
type meaning struct {
	role   role
	unit   string // of a duration, as in Go; empty if its form tells
	option string // its name in --field; empty if it has none
	names  string // that servers commonly use; the first that a line has is used
}

// meanings returns all that fields of JSON lines may mean.
func meanings() []meaning {
	return []meaning{
		{roleEnd, "", "time", "time ts timestamp @timestamp msec time_iso8601 time_local datetime"},
		{roleStart, "", "start", "start start_time StartUTC start_utc"},
		{roleMethod, "", "method", "method request_method RequestMethod http_method verb request.method"},
		{roleTarget, "", "uri", "request_uri request.uri RequestPath target uri url"},
		{rolePath, "", "path", "path url_path"},
		{roleQuery, "", "query", "query args query_string"},
		{roleRequest, "", "request", "request"},
		{roleHost, "", "host", "host http_host authority RequestHost request.host vhost server_name"},
		{roleScheme, "", "scheme", "scheme RequestScheme"},
		{roleProto, "", "proto", "proto protocol server_protocol RequestProtocol request.proto"},
		{roleClient, "", "client", "client client_ip remote_addr remote_ip ClientHost request.client_ip request.remote_ip downstream_remote_address ip"},
		{roleStatus, "", "status", "status status_code response_code DownstreamStatus code"},
		{roleDuration, "s", "duration", "request_time"},
		{roleDuration, "ms", "duration_ms", "duration_ms latency_ms elapsed_ms took_ms response_time_ms"},
		{roleDuration, "us", "duration_us", "duration_us latency_us"},
		{roleDuration, "ns", "duration_ns", "Duration duration_ns"},
		{roleDuration, "", "", "duration latency elapsed took"},
		{roleBody, "", "body", "request_body"},
		{roleOwn, "", "", "request_id"},
		{roleLimit, "", "", "limit"},
		{roleList, "", "", "list"},
		{roleKeys, "", "", "keys"},
		{roleRoute, "", "", "route"},
		{roleListener, "", "", "listener"},
		{roleSample, "", "", "sample"},
		{roleCached, "", "", "cached_refusal"},
		{roleDecided, "", "", "decided_at"},
		{roleRepeat, "", "", "repeated"},
		{roleUpstream, "", "", "upstream"},
		{roleRefunded, "", "", "refunded"},
		{roleError, "", "", "error"},
		{roleMessage, "", "", "message"},
	}
}

// Names maps the fields of JSON lines to their meaning.
type Names struct {
	byField  map[string]name
	prefixes map[string]bool // prefixes of objects that contain names, such as "request."
	origins  []key.Origin    // origins of keys and route matchers
}

// A name is the meaning of a field.
type name struct {
	role   role
	unit   string // of a duration, as in Go; empty if its form tells
	rank   uint8  // the field with the lowest rank of its role is used; 0 is configured by the operator
	origin key.Origin
}

// NewNames returns the common names, and the names that nginx, Caddy and Traefik use for fields
// from which keys of the configurations are read: http_x_phone, request.headers.X-Phone,
// request_X-Phone, cookie_sid, arg_user. given are the operator's names, each WHAT=NAME:
// uri=path_and_query, header:X-Phone=phone, or phone=number for the key phone.
func NewNames(given []string, configs ...*config.Config) (*Names, error) {
	n := &Names{byField: map[string]name{}, prefixes: map[string]bool{}}
	for _, m := range meanings() {
		for i, text := range strings.Fields(m.names) {
			n.byField[text] = name{role: m.role, unit: m.unit, rank: uint8(1 + i)}
		}
	}
	n.origins = origins(configs)
	for _, o := range n.origins {
		for _, text := range spellings(o) {
			if _, taken := n.byField[text]; !taken {
				n.byField[text] = name{role: roleField, origin: o}
			}
		}
	}
	for _, one := range given {
		if err := n.addGiven(one, configs); err != nil {
			return nil, err
		}
	}
	for text := range n.byField {
		for i := range len(text) {
			if text[i] == '.' {
				n.prefixes[text[:i+1]] = true
			}
		}
	}
	return n, nil
}

// addGiven adds a name given by the operator.
func (n *Names) addGiven(text string, configs []*config.Config) error {
	what, field, found := strings.Cut(text, "=")
	if !found || what == "" || field == "" {
		return fmt.Errorf("field %q: write WHAT=NAME, for example header:X-Phone=phone or client=remote_addr", text)
	}
	var options []string
	for _, m := range meanings() {
		if m.option == what {
			n.byField[field] = name{role: m.role, unit: m.unit}
			return nil
		}
		if m.option != "" {
			options = append(options, m.option)
		}
	}
	o, err := key.ParseOrigin(what)
	if err == nil {
		if !o.Source.IsLogged() {
			return fmt.Errorf("field %q: %s is not read from a field of a log; write header:NAME, query:NAME, cookie:NAME, json:/POINTER or form:NAME", text, what)
		}
		n.add(field, o)
		return nil
	}
	for _, c := range configs {
		if s := c.Keys[what]; s != nil && s.From.Source != 0 {
			if s.From.Source.IsAddress() {
				n.byField[field] = name{role: roleClient}
			} else {
				n.add(field, s.From)
			}
			found = false // the field has been added
		}
	}
	if found {
		slices.Sort(options)
		return fmt.Errorf("field %q: %s is neither %s, nor a place as header:NAME, query:NAME, cookie:NAME, json:/POINTER or form:NAME, nor a key of the configuration that is read from one", text, what, strings.Join(options, ", "))
	}
	return nil
}

func (n *Names) add(field string, o key.Origin) {
	n.byField[field] = name{role: roleField, origin: o}
	n.origins = view.AddNew(n.origins, o)
}

// spellings returns the names under which servers log the value at o.
func spellings(o key.Origin) []string {
	low := strings.ReplaceAll(strings.ToLower(o.Name), "-", "_")
	switch o.Source {
	case key.Header:
		return []string{"http_" + low, "request.headers." + o.Name, "request_" + o.Name, "headers." + o.Name, "headers." + strings.ToLower(o.Name), "header:" + o.Name}
	case key.Cookie:
		return []string{"cookie_" + o.Name, "cookie:" + o.Name}
	case key.Query:
		return []string{"arg_" + o.Name, "query:" + o.Name}
	}
	return []string{o.String()}
}

// origins returns the origins by which routes of the configurations are matched, and from which
// their keys are read, without duplicates.
func origins(configs []*config.Config) []key.Origin {
	var all []key.Origin
	add := func(o key.Origin) {
		if o.Source.IsLogged() && !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	for _, c := range configs {
		add(key.HeaderField(c.ClientIP.Header))
		for _, r := range c.Routes {
			for _, name := range r.Fields() {
				add(key.HeaderField(name))
			}
			for _, read := range r.Reads() {
				for _, o := range read.Key.Origins() {
					add(o)
				}
			}
		}
	}
	return all
}
