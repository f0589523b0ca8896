package respond

// The names of fields and parameters in draft-ietf-httpapi-ratelimit-headers-10.
// Later revisions may rename parameters, so they are defined only here.
const (
	fieldPolicy = "Ratelimit-Policy" // canonical for net/http; field names ignore case
	fieldLimit  = "Ratelimit"

	paramQuota     = "q"  // permits a window
	paramWindow    = "w"  // its length in seconds, 1 or more
	paramRemaining = "r"  // permits left
	paramUnit      = "qu" // what the quota counts; requests when absent
	paramReset     = "t"  // seconds until more come

	typeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

	typeChallenge = "https://github.com/weir-proxy/weir/problems/challenge"

	titleChallenge       = "A challenge must be solved first"
	titleQuotaExceeded   = "Request cannot be satisfied as assigned quota has been exceeded"
	titleReducedCapacity = "Request cannot be satisfied due to temporary server capacity constraints"
)

// The de facto standard fields. Reset is a number of seconds, not a point in
// time.
const (
	fieldXLimit     = "X-Ratelimit-Limit"
	fieldXRemaining = "X-Ratelimit-Remaining"
	fieldXReset     = "X-Ratelimit-Reset"
)
