"""GLSL 3.30 programs that draw people and their surroundings; colours stay linear until a program's last line."""

_LIGHT = """
uniform vec3 sun, light, sky, earth, gain;
uniform float contrast, saturation;
uniform mat4 to_light;
uniform sampler2DShadow shade;

vec3 lit(vec3 colour, vec3 n, vec3 at, float gloss, vec3 eye) {
    vec4 place = to_light * vec4(at + 0.35 * n, 1.0);
    vec3 p = 0.5 * place.xyz / place.w + 0.5;
    float open = 1.0;
    if (all(greaterThan(p, vec3(0.0))) && all(lessThan(p, vec3(1.0)))) {
        float step = 1.2 / 512.0;
        open = 0.25 * (texture(shade, p + vec3(step, step, -0.002)) + texture(shade, p + vec3(-step, step, -0.002))
                     + texture(shade, p + vec3(step, -step, -0.002)) + texture(shade, p + vec3(-step, -step, -0.002)));
    }
    float facing = max(dot(n, sun), 0.0);
    vec3 around = mix(earth, sky, 0.5 + 0.5 * n.y) * (0.75 + 0.25 * clamp(at.y / 12.0, 0.0, 1.0));
    vec3 half_way = normalize(sun + normalize(eye - at));
    float glint = gloss * pow(max(dot(n, half_way), 0.0), 24.0) * step(0.001, facing);
    return colour * (around + light * facing * open) + light * glint * open;
}

vec3 seen(vec3 colour) {
    colour *= gain;
    colour = mix(vec3(dot(colour, vec3(0.3, 0.59, 0.11))), colour, saturation);
    colour = max(colour, 0.0);
    colour = colour * (1.0 + colour / 9.0) / (1.0 + 0.6 * colour);  // highlights fade into white
    return pow(clamp(colour, 0.0, 1.0), vec3(contrast / 2.2));
}
"""

PERSON_VERTEX = """#version 330
in vec3 in_at, in_normal, in_zone;
in vec2 in_uv;
in vec4 in_bones, in_influence;
uniform vec4 bones[3 * 18];
uniform mat4 stand, to_screen;
out vec3 rest, normal, at, zone, rest_normal;
out vec2 uv;
void main() {
    mat3x4 move = mat3x4(0.0);
    for (int i = 0; i < 4; i++) {
        int bone = 3 * int(in_bones[i]);
        move += in_influence[i] * mat3x4(bones[bone], bones[bone + 1], bones[bone + 2]);
    }
    vec4 world = stand * vec4(vec4(in_at, 1.0) * move, 1.0);
    normal = mat3(stand) * (vec4(in_normal, 0.0) * move);
    rest = in_at; rest_normal = in_normal; zone = in_zone; uv = in_uv; at = world.xyz;
    gl_Position = to_screen * world;
}
"""

PERSON_FRAGMENT = (
    """#version 330
in vec3 rest, normal, at, zone, rest_normal;
in vec2 uv;
out vec4 image;
uniform sampler2D cloth;
uniform vec3 eye, tint, skin;
uniform float brightness;  // mean of the texture, by which it is divided so that only its folds remain
uniform int kind;  // 0 the texture itself, 1 its folds in one colour, 2 clothes
uniform vec3 colours[4];  // upper ground and pattern, lower ground and pattern
uniform vec4 upper, lower;  // pattern, scale, angle, seed
uniform vec2 own;  // weight of the texture's hues, above and below the waist
uniform vec3 cut;  // height of the waist, length of sleeves, length of legs
"""
    + _LIGHT
    + """
float hash(vec2 p) { p = fract(p * vec2(0.1031, 0.1103)); p += dot(p, p.yx + 33.33); return fract((p.x + p.y) * p.x); }
float grain(vec2 p) {
    vec2 i = floor(p), f = fract(p); f = f * f * (3.0 - 2.0 * f);
    return mix(mix(hash(i), hash(i + vec2(1, 0)), f.x), mix(hash(i + vec2(0, 1)), hash(i + vec2(1, 1)), f.x), f.y);
}
float pattern(vec4 how, vec2 p, float arm, float front) {
    float seed = how.w, c = cos(how.z), s = sin(how.z);
    vec2 q = mat2(c, s, -s, c) * p * how.y;
    int which = int(how.x + 0.5);
    if (which == 1) return step(fract(q.y), 0.25 + 0.5 * seed);
    if (which == 2) return step(fract(2.0 * q.x), 0.12 + 0.3 * seed);
    if (which == 3) return 0.5 * step(fract(q.x), 0.5) + 0.5 * step(fract(q.y), 0.5);
    if (which == 4) return 1.0 - step(0.3, length(fract(1.5 * q) - 0.5));
    if (which == 5) return step(0.55, grain(2.0 * q + 40.0 * seed)) + 0.45 * step(0.6, grain(2.7 * q + 9.0));
    if (which == 6) {  // on the chest, the back or both
        if (arm > 0.5 || (seed < 0.4 && front < 0.0) || (seed > 0.75 && front > 0.0)) return 0.0;
        vec2 r = (p - vec2(0.0, 3.3)) / (0.6 + 0.5 * how.y);
        if (fract(seed * 7.0) < 0.33) return 1.0 - step(1.0, length(r));
        if (max(abs(r.x), abs(r.y)) > 1.0) return 0.0;
        if (fract(seed * 7.0) < 0.66) return step(0.45, hash(floor(4.0 * r) + floor(100.0 * seed)));
        return step(fract(2.5 * r.y), 0.55) * step(abs(r.x), 0.5 + 0.5 * hash(vec2(floor(2.5 * r.y), seed)));
    }
    if (which == 7) return seed < 0.5 ? step(0.5, arm) : step(2.6 * seed, p.y);
    if (which == 8) return clamp(0.5 + 0.25 * how.y * (p.y - 2.5), 0.0, 1.0);
    if (which == 10) return front > 0.0 && arm < 0.5 ? step(abs(p.x), (0.25 + 0.9 * seed) * (1.3 - 0.1 * p.y)) : 0.0;
    if (which == 9) return max(step(abs(abs(atan(p.x, 1.0)) - 0.9), 0.08), step(abs(p.x), 0.18));
    return 0.0;
}
void main() {
    vec4 texel = texture(cloth, uv);
    if (texel.a < 0.4) discard;
    vec3 own_colour = pow(texel.rgb, vec3(2.2));
    float fold = clamp(dot(own_colour, vec3(0.33333)) / brightness, 0.35, 1.8);
    vec3 n = normalize(normal), colour = own_colour * tint;
    float gloss = 0.02;
    if (!gl_FrontFacing) n = -n;
    if (kind == 1) { colour = tint * fold; gloss = 0.08; }
    if (kind == 2) {
        float arm = step(0.5, zone.x);
        vec2 p = vec2(abs(rest_normal.x) > 0.75 ? rest.z : rest.x, zone.z);
        bool above = arm > 0.5 || zone.z > cut.x;
        if (arm > 0.5) p = vec2(rest.z, -6.0 * zone.y);
        vec4 how = above ? upper : lower;
        float mixed = clamp(pattern(how, p, arm, rest_normal.z), 0.0, 1.0);
        colour = mix(above ? colours[0] : colours[2], above ? colours[1] : colours[3], mixed) * fold;
        colour = mix(colour, own_colour, above ? own.x : own.y);
        if ((arm > 0.5 && zone.y > cut.y) || (arm < 0.5 && zone.y > cut.z)) colour = skin;
    }
    image = vec4(seen(lit(colour, n, at, gloss, eye)), 1.0);
}
"""
)

BOX_VERTEX = """#version 330
in vec3 in_at, in_normal, in_colour, in_uv;
uniform mat4 to_screen;
out vec3 at, normal, colour, uv;
void main() {
    at = in_at; normal = in_normal; colour = in_colour; uv = in_uv;
    gl_Position = to_screen * vec4(in_at, 1.0);
}
"""

BOX_FRAGMENT = (
    """#version 330
in vec3 at, normal, colour, uv;
out vec4 image;
uniform sampler2DArray surfaces;
uniform vec3 eye, backdrop;
"""
    + _LIGHT
    + """
void main() {
    vec4 texel = texture(surfaces, uv);
    if (texel.a < 0.5) discard;
    vec3 found = lit(colour * texel.rgb * 2.0, normalize(normal), at, 0.0, eye);
    float haze = 1.0 - exp(-length(eye - at) / 2500.0);
    image = vec4(seen(mix(found, backdrop, haze)), 1.0);
}
"""
)

SHADOW_FRAGMENT = """#version 330
void main() {}
"""
