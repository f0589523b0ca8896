package http1

import (
	"encoding/binary"
	"iter"
	"strings"
)

// A Name identifies a well-known field name, so that fields can be looked up and
// dropped by comparing numbers. All other names are Other.
type Name uint8

// The well-known names, in order of their length, so that a name is compared only with
// those of the same length. Some are here only because they are frequent: a well-known
// name is parsed faster than others.
const (
	Other Name = iota
	TE
	Via
	Age
	Host
	Date
	Vary
	ETag
	Proxy
	Accept
	ServerField
	Cookie
	Expect
	Origin
	Referer
	Upgrade
	Trailer
	AltSvc
	Location
	Forwarded
	XRealIP
	RateLimit
	Connection
	UserAgent
	KeepAlive
	SetCookie
	RetryAfter
	ContentType
	MaxForwards
	XRequestID
	LastModified
	CacheControl
	ContentRange
	Authorization
	ContentLength
	HTTP2Settings
	AcceptEncoding
	AcceptLanguage
	XForwardedFor
	ContentEncoding
	ProxyConnection
	XForwardedHost
	WWWAuthenticate
	RateLimitPolicy
	TransferEncoding
	XForwardedProto
	ProxyAuthenticate
	ProxyAuthorization
	nameCount
)

// nameTable has a row for each Name: its canonical spelling, and in the last byte the
// length of that. It is a constant string because indexing an array would copy it for
// each lookup.
const nameTable = "" +
	"                       \x00" +
	"Te                     \x02" +
	"Via                    \x03" +
	"Age                    \x03" +
	"Host                   \x04" +
	"Date                   \x04" +
	"Vary                   \x04" +
	"Etag                   \x04" +
	"Proxy                  \x05" +
	"Accept                 \x06" +
	"Server                 \x06" +
	"Cookie                 \x06" +
	"Expect                 \x06" +
	"Origin                 \x06" +
	"Referer                \x07" +
	"Upgrade                \x07" +
	"Trailer                \x07" +
	"Alt-Svc                \x07" +
	"Location               \x08" +
	"Forwarded              \x09" +
	"X-Real-Ip              \x09" +
	"Ratelimit              \x09" +
	"Connection             \x0a" +
	"User-Agent             \x0a" +
	"Keep-Alive             \x0a" +
	"Set-Cookie             \x0a" +
	"Retry-After            \x0b" +
	"Content-Type           \x0c" +
	"Max-Forwards           \x0c" +
	"X-Request-Id           \x0c" +
	"Last-Modified          \x0d" +
	"Cache-Control          \x0d" +
	"Content-Range          \x0d" +
	"Authorization          \x0d" +
	"Content-Length         \x0e" +
	"Http2-Settings         \x0e" +
	"Accept-Encoding        \x0f" +
	"Accept-Language        \x0f" +
	"X-Forwarded-For        \x0f" +
	"Content-Encoding       \x10" +
	"Proxy-Connection       \x10" +
	"X-Forwarded-Host       \x10" +
	"Www-Authenticate       \x10" +
	"Ratelimit-Policy       \x10" +
	"Transfer-Encoding      \x11" +
	"X-Forwarded-Proto      \x11" +
	"Proxy-Authenticate     \x12" +
	"Proxy-Authorization    \x13"

const (
	nameRow = 24 // bytes of a row
	maxName = 19 // length of the longest well-known name
)

// nameStart holds, for each length up to maxName+1, the first Name that is at least as
// long.
const nameStart = "\x01\x01\x01\x02\x04\x08\x09\x0e\x12\x13\x16\x1a\x1b\x1e\x22\x24\x27\x2c\x2e\x2f\x30"

// row returns the row of n.
func (n Name) row() string {
	at := int(n) * nameRow
	return nameTable[at : at+nameRow]
}

// A NameSet is a set of names. Each name n is the bit 1<<n.
type NameSet uint64

func (n Name) in(set NameSet) bool { return set>>(n&63)&1 != 0 }

// String returns the canonical spelling of the name, as in X-Request-Id.
func (n Name) String() string {
	row := n.row()
	return row[:row[nameRow-1]]
}

// LookupName returns the Name of the field name s, in any case, or Other.
func LookupName(s string) Name {
	if len(s) > maxName {
		return Other
	}
	for n := Name(nameStart[len(s)]); n < Name(nameStart[len(s)+1]); n++ {
		if row := n.row(); row[0]|0x20 == s[0]|0x20 && equalFoldLower(s, row[:len(s)]) {
			return n
		}
	}
	return Other
}

// knownName finds the colon after the field name at the beginning of b, eight bytes at
// a time, and returns the Name and the index of the colon. A name that is spelled like
// a well-known one needs no check of each character. Other means that the name must be
// checked. It may be a well-known one that is close to the end of b.
func knownName(b []byte) (n Name, end int) {
	in := min(len(b), nameRow)
	if end = colonIndex(b[:in:in]); end == 0 || end > maxName {
		return Other, 0
	}
	first, surplus := binary.LittleEndian.Uint64(b), max(64-8*end, 0)
	for n := Name(nameStart[end]); n < Name(nameStart[end+1]); n++ {
		row := n.row()
		if foldedDiff(first, loadUint64(row))<<(surplus&63) == 0 && equalFoldRest(b[:end], row) {
			return n, end
		}
	}
	return Other, 0
}

// equalFoldRest compares what follows the first eight bytes of a name.
func equalFoldRest(s []byte, row string) bool {
	last := len(s) - 8 // the last eight bytes may overlap with others
	return last <= 0 || foldedDiff(binary.LittleEndian.Uint64(s[last:]), loadUint64(row[last:])) == 0 &&
		(last <= 8 || foldedDiff(binary.LittleEndian.Uint64(s[8:]), loadUint64(row[8:])) == 0)
}

// colonIndex returns the index of the first colon in b, or 0 if there is none before the
// last seven bytes.
func colonIndex(b []byte) int {
	for i := 0; i <= len(b)-8; i += 8 {
		if at := zeroByte(binary.LittleEndian.Uint64(b[i:]) ^ lowBits*':'); at != 0 {
			return i + byteIndex(at)
		}
	}
	return 0
}

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
	optionUpgrade
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
	case equalFoldLower(option, "upgrade"): // StripHopByHop drops the field in any case
		return optionUpgrade
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
			if element = strings.Trim(element, " \t"); element != "" && !yield(element) {
				return
			}
		}
	}
}

// AllowedInTrailer reports whether DropForbiddenTrailers leaves fields with this name.
func AllowedInTrailer(name string) bool { return !LookupName(name).in(forbiddenTrailers) }

// DropForbiddenTrailers drops the fields that are not allowed in a trailer section.
func (f *Fields) DropForbiddenTrailers() { f.DropSet(forbiddenTrailers) }
