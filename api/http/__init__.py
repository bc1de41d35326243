"""HTTP between a socket and a route: limits on connections, headers and bodies, who may ask from where, errors as answers."""
