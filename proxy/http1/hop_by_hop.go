package http1

import (
	"iter"
	"strings"
)

// hopByHop is the set of hop-by-hop fields, which concern only one connection (RFC 9110
// section 7.6.1), and of the fields that define the framing. A proxy generates its own.
const hopByHop NameSet = 1<<Connection | 1<<KeepAlive | 1<<ProxyConnection | 1<<TE | 1<<Trailer |
	1<<TransferEncoding | 1<<Upgrade | 1<<ProxyAuthenticate | 1<<ProxyAuthorization |
	1<<HTTP2Settings | 1<<ContentLength

// forbiddenTrailers is the set of well-known fields that are not allowed in a trailer
// section: those that concern framing, routing, authentication or the processing of the
// message (RFC 9110 section 6.5.1).
const forbiddenTrailers NameSet = hopByHop | 1<<Host | 1<<ContentType | 1<<ContentEncoding | 1<<ContentRange |
	1<<Expect | 1<<Via | 1<<MaxForwards | 1<<Forwarded | 1<<XForwardedFor | 1<<XForwardedHost |
	1<<XForwardedProto | 1<<XRealIP | 1<<XRequestID | 1<<Date | 1<<WWWAuthenticate |
	1<<Authorization | 1<<Cookie | 1<<SetCookie | 1<<AltSvc | 1<<RateLimit | 1<<RateLimitPolicy | 1<<RetryAfter |
	1<<CacheControl | 1<<Age | 1<<Proxy

// StripHopByHop drops the hop-by-hop fields: those that are named by Connection, and
// those that are well known. It must be called before the proxy adds its own fields.
// Otherwise a client could have these removed by naming them in Connection.
func (f *Fields) StripHopByHop() {
	if f.present&hopByHop == 0 {
		return
	}
	if f.options&optionOther != 0 {
		for i := range f.lines {
			if l := &f.lines[i]; l.id == Connection {
				f.dropNamed(f.value(l))
			}
		}
	}
	f.DropSet(hopByHop)
}

// The kinds of options in Connection. Each kind is a bit.
const (
	optionClose = 1 << iota
	optionKeepAlive
	optionOther // most are names of fields
)

// optionOf returns the kind of an option, or 0 for an empty one.
func optionOf(option string) byte {
	switch {
	case option == "":
		return 0
	case equalFoldLower(option, "keep-alive"):
		return optionKeepAlive
	case equalFoldLower(option, "close"):
		return optionClose
	}
	return optionOther
}

// addOptions records the kinds of options in a value of Connection.
func (f *Fields) addOptions(list string) {
	if kind := optionOf(list); kind != optionOther { // the usual value: a single option
		f.options |= kind
		return
	}
	for option := range Elements(list) {
		f.options |= optionOf(option)
	}
}

// dropNamed drops the fields that are named in a value of Connection.
func (f *Fields) dropNamed(list string) {
	for name := range Elements(list) {
		if optionOf(name) == optionOther {
			f.Drop(name)
		}
	}
}

// Elements iterates over the elements of a comma-separated list that are not empty.
func Elements(list string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := list; rest != ""; {
			var element string
			element, rest, _ = strings.Cut(rest, ",")
			if element = trim(element); element != "" && !yield(element) {
				return
			}
		}
	}
}

// hasToken reports whether a field n contains the element small in its list. small must
// be in lower case.
func (f *Fields) hasToken(n Name, small string) bool {
	for l := range f.All() {
		if l.ID != n {
			continue
		}
		for element := range Elements(l.Value) {
			if equalFoldLower(element, small) {
				return true
			}
		}
	}
	return false
}

// AllowedInTrailer reports whether DropForbiddenTrailers leaves fields with this name.
func AllowedInTrailer(name string) bool { return !LookupName(name).in(forbiddenTrailers) }

// DropForbiddenTrailers drops the fields that are not allowed in a trailer section.
func (f *Fields) DropForbiddenTrailers() { f.DropSet(forbiddenTrailers) }
