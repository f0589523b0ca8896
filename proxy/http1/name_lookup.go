package http1

// nameOf returns the Name of s, in any case, or Other.
func nameOf[S string | []byte](s S) Name {
	n := candidate(s)
	if n != Other && equalFoldLower(s, n.spelling()) {
		return n
	}
	return Other
}

// longestName is the number of bytes of a line that are searched for the colon after a
// well-known name.
const longestName = 24

// knownName finds the colon after the field name at the beginning of b, eight bytes at
// a time, and returns the Name and the index of the colon. A name that is spelled like
// a well-known one needs no check of each character. It may return Other for a
// well-known name that is close to the end of b.
func knownName(b []byte) (n Name, end int) {
	for i := 0; i < longestName && i+8 <= len(b); i += 8 {
		if at := zeroByte(loadUint64(b[i:]) ^ lowBits*':'); at != 0 {
			end = i + byteIndex(at)
			return nameOf(b[:end]), end
		}
	}
	return Other, 0
}

// candidate returns the only Name that s can be, given its length and one or two of its
// letters.
func candidate[S string | []byte](s S) Name {
	if len(s) < 2 {
		return Other
	}
	switch len(s) {
	case 2:
		return TE
	case 3:
		return pick(s[0], 'v', Via, Age)
	case 4:
		return pick(s[0], 'h', Host, Date)
	case 5:
		return Proxy
	case 6:
		return pick(s[0], 'c', Cookie, Expect)
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
		return pick(s[0], 'h', HTTP2Settings, ContentLength)
	case 15:
		return pick(s[0], 'x', XForwardedFor, Name(0))
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
		return pick(s[0], 'x', XForwardedProto, TransferEncoding)
	case 18:
		return ProxyAuthenticate
	case 19:
		return ProxyAuthorization
	}
	return Other
}

// pick returns a if letter is small in any case, otherwise b.
func pick(letter, small byte, a, b Name) Name {
	if lower(letter) == small {
		return a
	}
	return b
}
