package http1

// nameOf finds which name s is, whatever its case.
func nameOf[S string | []byte](s S) Name {
	n := candidate(s)
	if n != Other && fold(s, n.spelling()) {
		return n
	}
	return Other
}

// candidate is the only name that s can be, going by its length and one letter.
func candidate[S string | []byte](s S) Name {
	if len(s) < 2 {
		return Other
	}
	switch len(s) {
	case 2:
		return TE
	case 3:
		return either(s[0], 'v', Via, Age)
	case 4:
		return either(s[0], 'h', Host, Date)
	case 5:
		return Proxy
	case 6:
		return either(s[0], 'c', Cookie, Expect)
	case 7:
		switch lower(s[0]) {
		case 't':
			return Trailer
		case 'a':
			return AltSvc
		}
		return Upgrade
	case 9:
		switch lower(s[0]) {
		case 'f':
			return Forwarded
		case 'r':
			return RateLimit
		}
		return XRealIP
	case 10:
		switch lower(s[0]) {
		case 'k':
			return KeepAlive
		case 's':
			return SetCookie
		}
		return Connection
	case 11:
		return RetryAfter
	default:
		return longCandidate(s)
	}
}

func longCandidate[S string | []byte](s S) Name {
	switch len(s) {
	case 12:
		switch lower(s[0]) {
		case 'm':
			return MaxForwards
		case 'x':
			return XRequestID
		}
		return ContentType
	case 13:
		switch lower(s[0]) {
		case 'c':
			if lower(s[1]) == 'a' {
				return CacheControl
			}
			return ContentRange
		}
		return Authorization
	case 14:
		return either(s[0], 'h', HTTP2Settings, ContentLength)
	case 15:
		return either(s[0], 'x', XForwardedFor, Name(0))
	case 16:
		switch lower(s[0]) {
		case 'p':
			return ProxyConnection
		case 'w':
			return WWWAuthenticate
		case 'x':
			return XForwardedHost
		case 'r':
			return RateLimitPolicy
		}
		return ContentEncoding
	case 17:
		return either(s[0], 'x', XForwardedProto, TransferEncoding)
	case 18:
		return ProxyAuthenticate
	case 19:
		return ProxyAuthorization
	}
	return Other
}

// either is a if the letter is the given one, else b.
func either(letter, small byte, a, b Name) Name {
	if lower(letter) == small {
		return a
	}
	return b
}
