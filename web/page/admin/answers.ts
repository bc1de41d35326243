// What the administrator's routes answer (openapi.json describes it), as far as the page reads it.

export interface Run {
  id: string;
  kind: "request" | "job";
  tenant: string;
  model: string;
  version: string;
  parameter_set: string;
  samples: number;
  waited_seconds: number;
  seconds: number | null;
  estimated_seconds: number;
  device: string | null;
}

export interface Load {
  version: string;
  service: string;
  uptime_seconds: number;
  engine: { answers: boolean; restarts: number; devices: string[]; workers: number };
  queue: { waiting: number; limit: number; seconds: number };
  runs: Run[];
  jobs: Record<string, number>;
  keys: {
    resident: number;
    memory_bytes: number;
    memory_limit_bytes: number;
    device_bytes: number;
    device_limit_bytes: number;
    hits: number;
    misses: number;
  };
  connections: { open: number; busy: number; limit: number } | null;
  bodies: { held_bytes: number; limit_bytes: number };
  disk: { free_bytes: number; room_bytes: number; reserve_bytes: number };
  requests: { step_seconds: number; requests: number[]; refused: number[]; failed: number[]; codes: Record<string, number> };
}

export interface Model {
  name: string;
  version: string;
  state: string;
  reason: string;
  parameter_set: string;
  bootstraps: number;
  runs: number;
  samples: number;
  run_seconds: number;
}

export interface Tenant {
  tenant: string;
  created_at: number;
  models: string[] | null;
  max_bytes: number | null;
  max_bootstraps_per_day: number | null;
  max_queue: number | null;
  max_answers_per_day: number | null;
  limits: { bytes: number; bootstraps_per_day: number; answers_per_day: number; queue: number };
  bytes_stored: Record<string, number>;
  today: { requests: number; samples: number; bootstraps: number };
  most_answers_today: number;
  waiting: number;
  api_keys: number;
}

export interface ApiKey {
  id: string;
  tenant: string;
  scopes: string[];
  state: string;
  created_at: number;
  expires_at: number | null;
}

export interface EvaluationKey {
  id: string;
  tenant: string;
  parameter_set: string;
  bytes: number;
  state: string;
  created_at: number;
  used_at: number;
  expires_at: number;
  resident: boolean;
}

export interface Job {
  id: string;
  tenant: string;
  model: string;
  version: string;
  state: string;
  priority: number;
  samples: number;
  created_at: number;
  started_at: number | null;
  finished_at: number | null;
  run_seconds: number | null;
  progress: { done: number; total: number } | null;
  error_code: string | null;
}
