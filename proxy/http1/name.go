package http1

import "net/textproto"

// A Name is a field name that this package knows, so that routing and stripping
// compare numbers. Any other name is Other.
type Name uint8

// The names that are known.
const (
	Other Name = iota
	Host
	Connection
	ContentLength
	TransferEncoding
	ContentType
	ContentEncoding
	ContentRange
	Expect
	Upgrade
	KeepAlive
	ProxyConnection
	TE
	Trailer
	ProxyAuthenticate
	ProxyAuthorization
	HTTP2Settings
	Via
	MaxForwards
	Forwarded
	XForwardedFor
	XForwardedHost
	XForwardedProto
	XRealIP
	XRequestID
	Date
	WWWAuthenticate
	Authorization
	Cookie
	SetCookie
	AltSvc
	RateLimit
	RateLimitPolicy
	RetryAfter
	CacheControl
	Age
	Proxy
	nameCount
)

// spelling is the name in lower case. A switch becomes a table of jumps; an array
// would be copied for each look.
func (n Name) spelling() string {
	switch n {
	case Host:
		return "host"
	case Connection:
		return "connection"
	case ContentLength:
		return "content-length"
	case TransferEncoding:
		return "transfer-encoding"
	case ContentType:
		return "content-type"
	case ContentEncoding:
		return "content-encoding"
	case ContentRange:
		return "content-range"
	case Expect:
		return "expect"
	case Upgrade:
		return "upgrade"
	case KeepAlive:
		return "keep-alive"
	case ProxyConnection:
		return "proxy-connection"
	case TE:
		return "te"
	case Trailer:
		return "trailer"
	case ProxyAuthenticate:
		return "proxy-authenticate"
	case ProxyAuthorization:
		return "proxy-authorization"
	case HTTP2Settings:
		return "http2-settings"
	case Via:
		return "via"
	case MaxForwards:
		return "max-forwards"
	case Forwarded:
		return "forwarded"
	case XForwardedFor:
		return "x-forwarded-for"
	case XForwardedHost:
		return "x-forwarded-host"
	case XForwardedProto:
		return "x-forwarded-proto"
	case XRealIP:
		return "x-real-ip"
	case XRequestID:
		return "x-request-id"
	case Date:
		return "date"
	case WWWAuthenticate:
		return "www-authenticate"
	case Authorization:
		return "authorization"
	case Cookie:
		return "cookie"
	case SetCookie:
		return "set-cookie"
	case AltSvc:
		return "alt-svc"
	case RateLimit:
		return "ratelimit"
	case RateLimitPolicy:
		return "ratelimit-policy"
	case RetryAfter:
		return "retry-after"
	case CacheControl:
		return "cache-control"
	case Age:
		return "age"
	case Proxy:
		return "proxy"
	}
	return ""
}

// String is the name as it is written here: the first letter of each word is a capital.
// Of those that a proxy adds to every message that costs nothing.
func (n Name) String() string {
	switch n {
	case Host:
		return "Host"
	case Via:
		return "Via"
	case Forwarded:
		return "Forwarded"
	case XForwardedFor:
		return "X-Forwarded-For"
	case XForwardedHost:
		return "X-Forwarded-Host"
	case XForwardedProto:
		return "X-Forwarded-Proto"
	case XRealIP:
		return "X-Real-Ip"
	case XRequestID:
		return "X-Request-Id"
	}
	return textproto.CanonicalMIMEHeaderKey(n.spelling())
}
