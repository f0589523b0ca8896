package convert

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// expectedRatelimit is what the file should be.
const expectedRatelimit = "expected a configuration of envoyproxy/ratelimit with domain and descriptors; of a ConfigMap, the text in its data"

// A ratelimitDomain is a configuration of envoyproxy/ratelimit: a tree whose paths are descriptors.
type ratelimitDomain struct {
	*document
	name string
}

// A ratelimitRule is an entry of descriptors, with what may follow it.
type ratelimitRule struct {
	line     int
	key      string
	pattern  pattern
	hasValue bool // a rule without a value is the last that is asked
	shared   bool // all values that the pattern matches have one count
	limit    *ratelimitLimit
	children []*ratelimitRule
}

// convertRatelimit converts all domains of a file.
func convertRatelimit(d *document, data []byte) error {
	documents, err := d.documents(data, expectedRatelimit)
	if err != nil {
		return err
	}
	d.note(0, "windows of ratelimit begin with the second, minute, hour or day of the clock, those of Weir's fixed_window with the first request",
		"write algorithm: token_bucket for at most the rate in any window, or leave it")
	d.note(0, "ratelimit counts each descriptor of a call by itself, and refused calls too; a call that Weir refuses uses up no limit", "")
	d.note(0, "ratelimit counts in the Redis of REDIS_URL", "write store: redis and redis: {addrs: [HOST:PORT]} for one count in all Weirs")
	d.sections.set("listen", `{http: none, decide: {grpc: "127.0.0.1:8081"}}`)
	taken := map[string]bool{}
	for _, o := range documents {
		r := &ratelimitDomain{document: d, name: o.get("domain").value()}
		switch {
		case r.name == "":
			return d.wrong(o.line(), "there is no domain", expectedRatelimit)
		case taken[r.name]:
			return d.wrong(o.get("domain").line(), "the domain "+r.name+" is there already", "expected each domain once")
		}
		taken[r.name] = true
		root := &ratelimitRule{}
		if root.children, err = r.rules(o.get("descriptors")); err != nil {
			return err
		}
		if err := r.routes(root); err != nil {
			return err
		}
		d.leaveUnused(o, ratelimitHint)
	}
	if len(d.routes) == 0 {
		return d.wrong(documents[0].line(), "no descriptor has a rate_limit", expectedRatelimit)
	}
	return nil
}

// value returns the text of a scalar as it is.
func (n node) value() string {
	if n.at == nil || n.at.Kind != yaml.ScalarNode || n.at.Tag == "!!null" {
		return ""
	}
	return n.at.Value
}

// rules reads the rules of a list of descriptors.
func (r *ratelimitDomain) rules(list node) (all []*ratelimitRule, err error) {
	for _, at := range list.items() {
		rule := &ratelimitRule{line: at.line(), key: at.get("key").value(), shared: at.get("share_threshold").text() == "true"}
		value := at.get("value").value()
		rule.pattern, rule.hasValue = pattern(value), value != ""
		if !rule.hasValue {
			rule.pattern = anything
		}
		switch {
		case rule.key == "":
			return nil, r.wrong(at.line(), "a descriptor has no key", "expected key with the name of an entry")
		case slices.ContainsFunc(all, rule.equals):
			return nil, r.wrong(at.line(), "the descriptor "+rule.name()+" is there already", "expected each key and value once in a list")
		case rule.shared && !(rule.hasValue && rule.pattern.isOpen()):
			return nil, r.wrong(at.get("share_threshold").line(), "share_threshold is only for values that end with *", "expected value: PREFIX* beside it")
		}
		if rule.limit, err = r.limit(at); err != nil {
			return nil, err
		}
		if rule.children, err = r.rules(at.get("descriptors")); err != nil {
			return nil, err
		}
		if strings.Contains(strings.TrimSuffix(value, "*"), "*") {
			r.note(at.line(), "a * that is not at the end matches itself only, in "+rule.name(), "write a route for each value, or PREFIX* if that is enough")
		}
		all = append(all, rule)
	}
	return slices.DeleteFunc(slices.Clone(all), func(rule *ratelimitRule) bool { return r.isHidden(rule, all) }), nil
}

// isHidden reports whether another rule of its list matches all that a rule matches, and is asked before it.
func (r *ratelimitDomain) isHidden(rule *ratelimitRule, all []*ratelimitRule) bool {
	if !rule.pattern.isOpen() {
		return false
	}
	for _, first := range all {
		if first == rule && rule.hasValue {
			return false
		}
		if first.hasValue && first.key == rule.key && first.pattern.includes(rule.pattern) {
			r.note(rule.line, rule.name()+" is not carried over: ratelimit never comes to it, because "+first.name()+" matches before", "")
			return true
		}
	}
	return false
}

// equals reports whether two rules of a list match the same entry by the same pattern.
func (r *ratelimitRule) equals(o *ratelimitRule) bool {
	return r.key == o.key && r.pattern == o.pattern && r.hasValue == o.hasValue
}

// name returns the entry of a rule as messages write it.
func (r *ratelimitRule) name() string {
	if !r.hasValue {
		return r.key
	}
	return r.key + ": " + string(r.pattern)
}

// ratelimitHint says what to do about a field that is not carried over.
func ratelimitHint(name string) string {
	switch name {
	case "detailed_metric", "value_to_metric":
		return "metrics of Weir have the limit and the route, and no values; see weir top for the keys"
	case "metadata":
		return "it is not sent to Envoy; use decision, limit, remaining and shadow, which Weir sends as dynamic metadata"
	}
	return "see what each does, and write it by hand"
}
