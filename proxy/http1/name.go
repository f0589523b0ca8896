package http1

import "net/textproto"

// A Name identifies a well-known field name, so that fields can be looked up and
// dropped by comparing numbers. All other names are Other.
type Name uint8

// The well-known names.
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

// spelling returns the name in lower case. The compiler turns the switch into a jump
// table; indexing an array would copy it for each lookup.
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

// String returns the canonical spelling of the name, as in X-Request-Id. It does not
// allocate for names that the proxy adds to every message.
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
